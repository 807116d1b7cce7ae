package linker

import "sync/atomic"

// Counts tell what a linker did with links.
type Counts struct {
	Led    uint64 `json:"led"`    // to a pseudonym
	Plain  uint64 `json:"plain"`  // to a plain name, for somebody who uses no pseudonyms
	Asked  uint64 `json:"asked"`  // a person, before a plain name
	None   uint64 `json:"none"`   // they led to no site of the cloud, or nobody clicked on them
	Failed uint64 `json:"failed"` // the database did not answer
}

type counter struct{ led, plain, asked, none, failed atomic.Uint64 }

// Counts returns the state.
func (l *Linker) Counts() Counts {
	n := &l.count
	return Counts{n.led.Load(), n.plain.Load(), n.asked.Load(), n.none.Load(), n.failed.Load()}
}
