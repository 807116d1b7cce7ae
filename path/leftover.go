package path

import "time"

// Leftover is what a process that ended left on this machine, and what ends by itself.
type Leftover struct {
	What   string    `json:"what"`
	Blocks string    `json:"blocks"`
	Ends   time.Time `json:"ends,omitzero"` // zero if unknown
	When   string    `json:"when"`          // the rule by which it ends
	By     string    `json:"by"`            // the command that ends it now
}
