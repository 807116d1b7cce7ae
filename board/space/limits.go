package space

import (
	"errors"
	"time"
)

// Limits bound a space and what one author has in it.
type Limits struct {
	Lease time.Duration `json:"max_lease" flag:"max-lease" help:"the longest lease"`
	// Slack limits how far an operation's time is from the space's clock, and is how long results are remembered.
	Slack time.Duration `json:"slack" flag:"slack" help:"how far a device's clock may be off"`
	Op    int           `json:"max_op" flag:"max-op" help:"the largest operation, and so tuple, in bytes"` // as encoded
	// Tuples and Bytes limit the whole space. Bytes counts encoded operations and remembered answers.
	Tuples int   `json:"max_tuples" flag:"max-tuples" help:"how many tuples there may be"`
	Bytes  int64 `json:"max_bytes" flag:"max-bytes" help:"how many bytes they may have"`
	// AuthorTuples and AuthorBytes limit one author.
	AuthorTuples int   `json:"author_tuples" flag:"author-tuples" help:"how many tuples one author may have"`
	AuthorBytes  int64 `json:"author_bytes" flag:"author-bytes" help:"how many bytes they may have"`
	// AuthorOps limits the remembered operations of one author, and so the rate: so many in a Slack.
	AuthorOps int `json:"author_ops" flag:"author-ops" help:"how many operations one author may make in --slack"`
}

// DefaultLimits are enough for about ten thousand nodes.
func DefaultLimits() Limits {
	return Limits{
		Lease: 7 * 24 * time.Hour, Slack: 2 * time.Minute, Op: 64 << 10,
		Tuples: 200_000, Bytes: 256 << 20,
		AuthorTuples: 2_000, AuthorBytes: 8 << 20, AuthorOps: 6_000,
	}
}

// MaxSlack limits [Limits.Slack], so that clients know by how much the lease of a tuple may be extended.
const MaxSlack = 10 * time.Minute

func (l Limits) check() error {
	switch {
	case l.Lease < time.Second || l.Lease > maxLease:
		return errors.New("the longest lease must be from a second to a hundred years")
	case l.Slack < time.Second || l.Slack > MaxSlack:
		return errors.New("the slack of clocks must be from a second to ten minutes")
	case l.Op < 512 || l.Op > MaxOp:
		return errors.New("the largest operation must be from 512 bytes to 1 MiB")
	case l.Tuples < 1 || l.Bytes < 1 || l.AuthorTuples < 1 || l.AuthorBytes < 1 || l.AuthorOps < 1:
		return errors.New("each limit of the space must be at least 1")
	}
	return nil
}
