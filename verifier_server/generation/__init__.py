"""What a request becomes: a prompt, a verify, a whole text, drafted on the server or not."""
