"""Fine-tuning and distillation of models after layers were removed, and what they predict."""
