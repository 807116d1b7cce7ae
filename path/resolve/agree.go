package resolve

import (
	"net/netip"
	"slices"

	"heddle/path"
)

// Enough is the number of independent witnesses that a claim about a server needs.
const Enough = 2

// Witness is who speaks when a path carries an answer: the network next to it, and the exit of a tunnel. Either can forge the
// answer, so paths that share one of them are one witness.
type Witness struct{ Observer, Exit string }

// WitnessOf returns the witness of a path.
func WitnessOf(p path.Path) Witness {
	info := p.Describe()
	return Witness{info.Observer, info.Exit}
}

func (w Witness) independent(other Witness) bool {
	return w.Observer != other.Observer && (w.Exit == "" || w.Exit != other.Exit)
}

// Independent counts independent witnesses, up to [Enough].
func Independent(all []Witness) int {
	for i, w := range all {
		if slices.ContainsFunc(all[:i], w.independent) {
			return Enough
		}
	}
	return min(len(all), 1)
}

// Answer is what a nameserver answered over the path of a witness.
type Answer struct {
	Path string // its name
	Witness
	Addresses []netip.AddrPort
}

// Agreed returns the addresses that at least need independent witnesses gave, in the order of the answers. need is at most
// [Enough].
func Agreed(answers []Answer, need int) (out []netip.AddrPort) {
	by := map[netip.AddrPort][]Witness{}
	var order []netip.AddrPort
	for _, a := range answers {
		for _, at := range a.Addresses {
			if by[at] == nil {
				order = append(order, at)
			}
			by[at] = append(by[at], a.Witness)
		}
	}
	for _, at := range order {
		if Independent(by[at]) >= need {
			out = append(out, at)
		}
	}
	return out
}
