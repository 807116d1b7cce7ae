package control

import (
	"context"
	"errors"
	"net/http"
	"time"

	"heddle/stripe"
)

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

// Streams makes the server answer for streams too. Call it before [Server.Serve]; status must be safe to call at any time.
func (s *Server) Streams(status func() Stream) {
	s.mux.HandleFunc("GET /stream", func(w http.ResponseWriter, _ *http.Request) { write(w, status()) })
}

// StreamOf asks the named heddle for its status as a carrier of streams, nil where it is none.
func StreamOf(ctx context.Context, name string) (*Stream, error) {
	var status Stream
	err := read(ctx, name, "/stream", &status)
	if errors.Is(err, errAbsent) {
		return nil, nil
	}
	return &status, err
}
