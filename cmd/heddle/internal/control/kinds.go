package control

import (
	"time"

	"heddle/board"
	"heddle/overlay/client"
	"heddle/proxy/connectudp"
	"heddle/split"
	"heddle/stripe"
)

// Status is what a running heddle says of itself. Its JSON fields are a stable interface.
type Status struct {
	Sessions []split.Status     `json:"sessions"`
	Proxy    *connectudp.Status `json:"proxy,omitempty"`  // of heddle masque serve
	Stream   *Stream            `json:"stream,omitempty"` // of heddle stream, send and recv
	Node     *client.Status     `json:"node,omitempty"`   // of heddle node run
	Board    *Board             `json:"board,omitempty"`  // of heddle board run
}

// Stream is what a heddle that carries streams says of itself. Its JSON fields are a stable interface.
type Stream struct {
	// Role is "dial", "serve", "send" or "recv".
	Role    string `json:"role"`
	Service string `json:"service"`
	// Listen is where it is connected to: by programs where it dials, by peers where it serves.
	Listen string `json:"listen,omitempty"`
	// To is the peer where it dials, or what is served.
	To    string    `json:"to,omitempty"`
	Since time.Time `json:"since"`
	// Warm is how many of the sessions were dialled ahead and wait.
	Warm int `json:"warm"`
	// Why says what keeps sessions from being dialled ahead.
	Why      string          `json:"why,omitempty"`
	Sessions []stripe.Status `json:"sessions"`
}

// Board is what a board of one server says of itself. Its JSON fields are a stable interface.
type Board struct {
	Listen string    `json:"listen"`
	Since  time.Time `json:"since"`
	board.Status
}
