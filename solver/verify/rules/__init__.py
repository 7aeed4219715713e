"""The rules of the judge, one family per file; each exports FAMILY, its rules by name."""
