"""Every operator overload that writes to an argument, under every pattern of aliases, compared with eager."""
