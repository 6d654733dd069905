"""What the reports of all experiments share: HTML pages, figures, tables and example images."""
