from probescale.cli import main

main()
