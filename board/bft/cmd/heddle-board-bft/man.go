package main

import (
	"github.com/spf13/cobra"

	"heddle/internal/manual"
)

// filesText is the part of heddle-board-bft(1) about files.
const filesText = `HOME/replica.json
    Where clients and replicas come, and where the others are. It may be
    changed while the replica does not run.
HOME/genesis.json
    What all replicas agree on: their keys, the limits, and who is let in.
HOME/identity.pem, HOME/node_key.json, HOME/validator_key.json
    The replica's keys. Nobody else may have them.
HOME/validator_state.json
    What the replica voted for last. Never put back an old one.
HOME/data
    Blocks and tuples.`

func newManCommand() *cobra.Command {
	return manual.Command("heddle-board-bft", newRootCommand, "Heddle", filesText)
}
