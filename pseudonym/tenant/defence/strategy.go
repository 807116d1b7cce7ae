// Package defence changes how the objects of a site look to an observer who counts bytes: a Service Worker in the user's browser fetches
// each object in pieces, which are padded (appendix A of the paper). The site's content stays as it is.
package defence

import (
	"maps"
	"slices"
	"strings"

	"heddle/internal/errhint"
)

// Strategy decides how the size of an object shows. It is safe for concurrent use.
type Strategy interface {
	// Most is the largest number of pieces of an object. The browser draws the number for each object from 1 to Most.
	Most() int
	// Padded returns how many bytes are sent for a piece of n bytes, at least n.
	Padded(n int) int
	// Claim says what an observer sees of a page.
	Claim() string
}

// unitStrategy is a [Strategy] that fetches each object in as many units of one size as it takes, and pads the number of units of each page.
type unitStrategy interface {
	Strategy
	Unit() int // in bytes
}

// strategies have their names. None is not among them.
var strategies = map[string]Strategy{"pieces": pieces{}, "pad-pow2": padPow2{}, "site-constant": siteConstant{}}

// None is the name of no defence.
const None = "none"

// Names returns the names of all strategies, and None.
func Names() []string { return append(slices.Sorted(maps.Keys(strategies)), None) }

// Parse returns the strategy of a name, or nil for None.
func Parse(name string) (Strategy, error) {
	s, ok := strategies[name]
	if !ok && name != None {
		return nil, &errhint.Error{What: "defence " + name, Why: "there is no such strategy", Hint: "one of " + strings.Join(Names(), ", ")}
	}
	return s, nil
}
