# Each target sets up what it needs; when nothing changed, that takes no time and no network.
# MAGRAG_EXTRA=cpu|gpu|none chooses what is installed; by default gpu where an NVIDIA GPU answers, else cpu.
PYTHON ?= $(shell command -v python3 || command -v python3.13 || command -v python3.12 || command -v python3.11 || echo python3)
BOOTSTRAP := $(PYTHON) rag_app/bootstrap.py --extra $(or $(MAGRAG_EXTRA),auto)
# The program takes every MAGRAG_ variable for a setting of its own, and this one is for the set-up only.
unexport MAGRAG_EXTRA
BIN := .venv/bin
PACKAGES := rag_app retriever generator eval

.DEFAULT_GOAL := help
.PHONY: help demo setup test unit lint format clean

help:  ## say what there is
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14

demo:  ## set up and open the page on 127.0.0.1:7860
	@exec $(BOOTSTRAP) --demo

setup:  ## set up for development, with the demo's models
	@$(BOOTSTRAP) --dev

# Much of a test is the start of a process or a wait, so two at a time end sooner even on two cores. Files stay whole, since
# what a file prepares (an engine, a page) serves all of its tests.
test: setup  ## run all tests: unit, model, vLLM, browser
	@OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n 2 --dist loadfile

unit:  ## run the fast tests only
	@$(BOOTSTRAP) --dev --no-weights
	@$(BIN)/python -m pytest -m "not model and not e2e and not slow and not browser"

lint:  ## check style, format and types
	@$(BOOTSTRAP) --dev --no-weights
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy $(PACKAGES)

format:  ## put the code into shape
	@$(BOOTSTRAP) --dev --no-weights
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:  ## remove the environment and all caches; models and indexes stay
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
