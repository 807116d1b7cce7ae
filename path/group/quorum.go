package group

import (
	"fmt"

	"heddle/path"
)

// Quorum decides whether enough members of a session are healthy. The states may come from a [Group], or from the kernel.
type Quorum struct {
	Min      int  // healthy members below which nothing is sent
	Degrade  bool // one is enough
	Complete bool // Degrade takes effect only after Min members were healthy once

	enough, ran bool
}

// Need returns the number of healthy members that is required now.
func (q *Quorum) Need() int {
	if q.Degrade && (!q.Complete || q.ran) {
		return 1
	}
	return q.Min
}

// Set records the number of healthy members. It reports whether the result of [Quorum.Enough] changed.
func (q *Quorum) Set(healthy int) (turned bool) {
	enough := healthy >= q.Need()
	turned = enough != q.enough
	q.enough, q.ran = enough, q.ran || enough
	return turned
}

// Enough reports whether enough members were healthy at the last Set.
func (q *Quorum) Enough() bool { return q.enough }

// Ran reports whether enough members were ever healthy.
func (q *Quorum) Ran() bool { return q.ran }

// CheckMinPaths validates the minimum of healthy paths of a session with n paths, and replaces 0 by the default.
func CheckMinPaths(session string, n, minPaths int) (int, error) {
	if n == 0 {
		return 0, &path.Error{What: "session " + session, Why: "no path was given", Hint: "add --via NAME=KIND:ARG, for example --via home=if:eth0"}
	}
	if minPaths == 0 {
		return min(2, n), nil
	}
	if minPaths < 1 || minPaths > n {
		return 0, &path.Error{What: fmt.Sprintf("min-paths %d", minPaths), Why: fmt.Sprintf("%d paths were given", n),
			Hint: fmt.Sprintf("choose 1 to %d, or add paths", n)}
	}
	return minPaths, nil
}
