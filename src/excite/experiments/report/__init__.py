"""Reports of all experiments: tables, figures, example images and HTML."""
