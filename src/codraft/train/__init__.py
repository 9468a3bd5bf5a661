"""From a target to a drafter that an engine serves: data, features, objectives, the loop, export."""
