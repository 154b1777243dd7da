.PHONY: lab test
lab: ; @python3 start.py lab $(ARGS)
test: ; @python3 start.py test $(ARGS)
