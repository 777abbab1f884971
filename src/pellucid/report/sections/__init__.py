"""The sections of a report, one file each; a file that holds `SECTION` is found by being here."""
