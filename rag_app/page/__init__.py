"""The parts of the page: what a comparison says (`compare`), how it runs (`run`) and how it looks (`render`)."""
