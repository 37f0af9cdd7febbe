"""What every experiment needs: processes, a link, models, texts, reports."""
