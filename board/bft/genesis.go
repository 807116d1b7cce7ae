package bft

import (
	"encoding/json"
	"fmt"
	"slices"

	"heddle/board/space"
	"heddle/identity"
	"heddle/path"
)

// genesis is the application's part of CometBFT's genesis, equal in all replicas.
type genesis struct {
	Name     space.ID         `json:"name"`
	Limits   space.Limits     `json:"limits"`
	Members  []identity.Key   `json:"members"` // null admits everybody
	Replicas []genesisReplica `json:"replicas"`

	raw []byte
}

type genesisReplica struct {
	Key  identity.Key `json:"key"`  // towards clients
	Node string       `json:"node"` // towards replicas: CometBFT's ID
}

func parseGenesis(raw json.RawMessage) (genesis, error) {
	var g genesis
	if err := json.Unmarshal(raw, &g); err != nil {
		return g, &path.Error{What: "genesis", Why: "its app_state is not that of a board", Err: err}
	}
	if _, err := faults(len(g.Replicas)); err != nil {
		return g, err
	}
	g.raw = raw
	return g, nil
}

func (g genesis) config() space.Config {
	return space.Config{Name: g.Name, Limits: g.Limits, Members: g.Members}
}

// has reports whether a CometBFT ID belongs to a replica.
func (g genesis) has(node string) bool {
	return slices.ContainsFunc(g.Replicas, func(r genesisReplica) bool { return r.Node == node })
}

// faults returns f for n = 3f+1 replicas.
func faults(n int) (int, error) {
	if n < 4 || n%3 != 1 || n > 100 {
		return 0, &path.Error{What: "replicas", Why: fmt.Sprintf("there must be 3f+1 of them, to bear f liars, and not %d", n),
			Hint: "4, 7 or 10; a board of one machine is `heddle board run`"}
	}
	return (n - 1) / 3, nil
}
