"""What a verify costs against a decode step."""
