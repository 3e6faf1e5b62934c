"""`python -m hexgen_flow` is `hexgen-flow`."""

from hexgen_flow.start import main

if __name__ == "__main__":
    main()
