package group

import (
	"fmt"

	"heddle/path"
)

// Quorum says whether enough members of a session are healthy. Who learns of the members' states elsewhere, as from the
// kernel, uses it without a [Group].
type Quorum struct {
	// Min is how many healthy members it takes to send.
	Min int
	// Degrade makes one enough.
	Degrade bool
	// Complete lets Degrade wait until Min members were healthy.
	Complete bool

	enough, ran bool
}

// Need is how many healthy members it takes now.
func (q *Quorum) Need() int {
	if q.Degrade && (!q.Complete || q.ran) {
		return 1
	}
	return q.Min
}

// Set notes how many members are healthy, and reports whether that turned enough into too few, or the other way round.
func (q *Quorum) Set(healthy int) (turned bool) {
	enough := healthy >= q.Need()
	turned = enough != q.enough
	q.enough, q.ran = enough, q.ran || enough
	return turned
}

// Enough reports whether enough members were healthy at the last Set.
func (q *Quorum) Enough() bool { return q.enough }

// Ran reports whether enough members were healthy once.
func (q *Quorum) Ran() bool { return q.ran }

// CheckMinPaths reads how many healthy paths of n a session named so asks for; 0 is the default.
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
