"""Training: fine-tuning of an output layer (`finetune`) and of tag classifiers on large corpora (`tags`)."""
