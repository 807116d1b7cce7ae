package mptcp

import (
	"fmt"
	"io"

	"heddle/internal/text"
	"heddle/path"
)

// hello is the first message inside TLS, from the dialling side: the number of paths, the required number, flags, and the
// length of the service (a byte each), then the service.
type hello struct {
	paths, min int
	degrade    bool
	service    string
}

const flagDegrade = 1

func (h hello) encode() []byte {
	flags := byte(0)
	if h.degrade {
		flags = flagDegrade
	}
	return append([]byte{byte(h.paths), byte(h.min), flags, byte(len(h.service))}, h.service...)
}

func readHello(r io.Reader) (hello, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return hello{}, err
	}
	service := make([]byte, head[3])
	if _, err := io.ReadFull(r, service); err != nil {
		return hello{}, err
	}
	h := hello{paths: int(head[0]), min: int(head[1]), degrade: head[2]&flagDegrade != 0, service: string(service)}
	if h.paths < 1 || h.paths > MaxPaths || h.min < 1 || h.min > h.paths || head[2]&^flagDegrade != 0 {
		return hello{}, fmt.Errorf("it asks for %d of %d paths with flags %#x", h.min, h.paths, head[2])
	}
	return h, nil
}

// Refusal is the peer's reason for not admitting a connection.
type Refusal struct{ Why string }

// Error returns the peer's reason.
func (r *Refusal) Error() string { return "the peer refuses: " + r.Why }

const (
	answerWelcome = 0
	answerRefused = 1
)

// encodeRefusal encodes answerRefused, the length of the reason in one byte, and the reason.
func encodeRefusal(why string) []byte {
	why = why[:min(len(why), 255)]
	return append([]byte{answerRefused, byte(len(why))}, why...)
}

func readAnswer(r io.Reader) error {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r, head[:1]); err != nil {
		return &path.Error{What: "peer", Why: "did not let the connection in", Err: err, Hint: "has it your key? `heddle node key` shows it"}
	}
	if head[0] == answerWelcome {
		return nil
	}
	if _, err := io.ReadFull(r, head[1:]); err != nil || head[0] != answerRefused {
		return &path.Error{What: "peer", Why: fmt.Sprintf("answers what cannot be read: %#x", head[0]), Err: err}
	}
	why := make([]byte, head[1])
	if _, err := io.ReadFull(r, why); err != nil {
		return &path.Error{What: "peer", Why: "did not answer", Err: err}
	}
	return &Refusal{text.Printable(string(why))} // it may be shown in a terminal
}
