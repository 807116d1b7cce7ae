package control

import (
	"time"

	"heddle/board"
	"heddle/disguise/bridge"
	disguise "heddle/disguise/client"
	"heddle/overlay/client"
	"heddle/proxy/connectudp"
	"heddle/pseudonym/cloud"
	"heddle/pseudonym/tenant"
	"heddle/split"
	"heddle/stripe"
)

// Status is the status of a running heddle. Its JSON fields are a stable interface.
type Status struct {
	Sessions  []split.Status     `json:"sessions"`
	Proxy     *connectudp.Status `json:"proxy,omitempty"`     // of heddle masque serve
	Stream    *Stream            `json:"stream,omitempty"`    // of heddle stream, send and recv
	Node      *client.Status     `json:"node,omitempty"`      // of heddle node run
	Board     *Board             `json:"board,omitempty"`     // of heddle board run
	Bridge    *bridge.Status     `json:"bridge,omitempty"`    // of heddle disguise serve
	Disguise  *Disguise          `json:"disguise,omitempty"`  // of heddle disguise dial
	Pseudonym *cloud.Status      `json:"pseudonym,omitempty"` // of heddle pseudonym serve
	Tenant    *tenant.Status     `json:"tenant,omitempty"`    // of heddle pseudonym tenant run
}

// Stream is the status of a heddle that carries streams. Its JSON fields are a stable interface.
type Stream struct {
	Role     string          `json:"role"` // "dial", "serve", "send" or "recv"
	Service  string          `json:"service"`
	Listen   string          `json:"listen,omitempty"` // for programs if it dials, for peers if it serves
	To       string          `json:"to,omitempty"`     // the peer if it dials, or what is served
	Since    time.Time       `json:"since"`
	Warm     int             `json:"warm"`          // sessions dialled ahead and unused
	Why      string          `json:"why,omitempty"` // what keeps sessions from being dialled ahead
	Sessions []stripe.Status `json:"sessions"`
}

// Board is the status of a board of one server. Its JSON fields are a stable interface.
type Board struct {
	Listen string    `json:"listen"`
	Since  time.Time `json:"since"`
	board.Status
}

// Disguise is the status of a client of a bridge. Its JSON fields are a stable interface.
type Disguise struct {
	Listen string            `json:"listen"` // for programs
	Bridge string            `json:"bridge"`
	To     string            `json:"to,omitempty"`
	Since  time.Time         `json:"since"`
	Why    string            `json:"why,omitempty"` // why there is no link
	Links  []disguise.Status `json:"links"`
}
