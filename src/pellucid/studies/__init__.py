"""Studies: published tables and figures made again, beside what chance gives."""
