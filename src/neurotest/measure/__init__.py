"""What methods that read traces share: values as one array, and what training data says about a target."""
