package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"time"

	"heddle/internal/errhint"
	"heddle/internal/netutil"
)

// A gateway without rights has its connections held by another process of its machine, which listens at a unix socket. Each connection has a connection
// of the socket. Both sides send messages in JSON: the gateway one for each function of [Hold], the first with the descriptor of the connection, and
// the other process an answer to each but the last. It leads only established connections of its own network namespace, and takes their addresses from
// the descriptor. So a gateway that was broken into can lead the packets of its own clients alone. If the gateway ends early, the connection goes on
// there. If it is led already, it is reset.
//
// Processes of root, of the other process's own user and of the group of the socket may do so.
type holdAsk struct {
	Do     string         `json:"do"`
	Tenant netip.AddrPort `json:"tenant,omitzero"`
}

type holdAnswer struct {
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

const (
	holdBegin  = "hold"
	holdLead   = "lead"
	holdDirect = "lead-direct"
	holdResume = "resume"
	holdReset  = "reset"
	holdClose  = "close"
)

// Limits of holds by another process: how many at once, and the bytes that one side sends.
const (
	mostHolds = 1024
	holdMost  = 16 << 10
)

// errHold says that a gateway does not follow the protocol, or has ended.
var errHold = errors.New("a gateway broke off while a connection moved")

// Elsewhere has connections held by the process that listens at the socket file.
func Elsewhere(file string) Holder { return elsewhere(file) }

// CheckElsewhere reports why this process cannot have connections held there, or nil.
func CheckElsewhere(file string) error {
	way, err := elsewhere(file).dial()
	if err == nil {
		way.Close()
	}
	return err
}

type elsewhere string

func (e elsewhere) dial() (*net.UnixConn, error) {
	way, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: string(e), Net: "unix"})
	if err != nil {
		hint := "run heddle pseudonym serve --only switch beside the gateway"
		if errors.Is(err, fs.ErrPermission) {
			hint = "switch-group names a group of the gateway's user, who also needs the right to enter the directory"
		}
		return nil, &errhint.Error{What: "the switch", Why: "it does not answer", Hint: hint, Err: err}
	}
	return way, nil
}

func (e elsewhere) Hold(c *net.TCPConn) (Hold, error) {
	way, err := e.dial()
	if err != nil {
		return nil, err
	}
	_ = way.SetDeadline(time.Now().Add(dialFor))
	h := &holdElsewhere{way: way, answers: json.NewDecoder(io.LimitReader(way, holdMost))}
	if err := h.begin(c); err != nil {
		return nil, errors.Join(err, way.Close())
	}
	return h, nil
}

type holdElsewhere struct {
	way     *net.UnixConn
	answers *json.Decoder
}

func (h *holdElsewhere) begin(c *net.TCPConn) error {
	message, err := json.Marshal(holdAsk{Do: holdBegin})
	if err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = giveDescriptor(h.way, int(fd), message) }); err != nil {
		return err
	}
	if err := h.answer(); failed == nil || errhint.Of(err) != "" { // who refuses a connection may do so before it has read all
		return err
	}
	return failed
}

func (h *holdElsewhere) ask(a holdAsk) error {
	if err := json.NewEncoder(h.way).Encode(a); err != nil {
		return err
	}
	return h.answer()
}

func (h *holdElsewhere) answer() error {
	var a holdAnswer
	if err := h.answers.Decode(&a); err != nil {
		return err
	}
	if a.Error != "" {
		return &errhint.Error{What: "the switch", Why: a.Error, Hint: a.Hint}
	}
	return nil
}

func (h *holdElsewhere) Lead(tenant netip.AddrPort) error {
	return h.ask(holdAsk{holdLead, tenant})
}

func (h *holdElsewhere) LeadDirect(tenant netip.AddrPort) error {
	return h.ask(holdAsk{holdDirect, tenant})
}

func (h *holdElsewhere) Resume() error {
	return errors.Join(h.ask(holdAsk{Do: holdResume}), h.way.Close())
}

func (h *holdElsewhere) Reset() error {
	return errors.Join(h.ask(holdAsk{Do: holdReset}), h.way.Close())
}

// Close leaves the connection to the other process, which closes it with the last descriptor.
func (h *holdElsewhere) Close() error {
	return errors.Join(json.NewEncoder(h.way).Encode(holdAsk{Do: holdClose}), h.way.Close())
}

// ServeHolds holds connections for other processes of this machine until ctx ends.
func ServeHolds(ctx context.Context, l net.Listener, by Holder) error {
	group, places := groupOf(l.Addr().String()), make(chan struct{}, mostHolds)
	return netutil.Serve(ctx, l, func(way net.Conn) {
		select {
		case places <- struct{}{}:
		default:
			_ = answerHold(way, &errhint.Error{What: "this program", Why: "too many connections move at once"})
			way.Close()
			return
		}
		go func() {
			defer func() { <-places }()
			defer way.Close()
			_ = way.SetDeadline(time.Now().Add(moveFor))
			if !mayPass(way, group) {
				_ = answerHold(way, &errhint.Error{What: "this program", Why: "it serves nobody of that user", Hint: "switch-group is a group of the gateway's user"})
				return
			}
			_ = serveHold(way, by)
		}()
	})
}

// serveHold serves one connection that moves.
func serveHold(way net.Conn, by Holder) error {
	c, r, err := takeDescriptor(way)
	if err != nil {
		return err
	}
	conn, is := c.(*net.TCPConn)
	asks := json.NewDecoder(io.LimitReader(r, holdMost))
	var first holdAsk
	if err := asks.Decode(&first); err != nil || !is || first.Do != holdBegin || !inNetworkOf(conn, way) { // elsewhere a gateway may make connections of any addresses
		return errors.Join(errHold, err, c.Close())
	}
	held, err := by.Hold(conn)
	if err != nil {
		return errors.Join(answerHold(way, err), conn.Close())
	}
	led := false
	for err = answerHold(way, nil); err == nil; {
		var a holdAsk
		if err = asks.Decode(&a); err != nil {
			break
		}
		switch {
		case (a.Do == holdLead || a.Do == holdDirect) && !led:
			lead := held.Lead
			if a.Do == holdDirect {
				lead = held.LeadDirect
			}
			failed := lead(a.Tenant)
			led = failed == nil
			err = answerHold(way, failed)
		case a.Do == holdResume && !led: // else the tenant may speak already
			return errors.Join(answerHold(way, held.Resume()), conn.Close())
		case a.Do == holdReset:
			return errors.Join(answerHold(way, held.Reset()), conn.Close())
		case a.Do == holdClose:
			return held.Close()
		default:
			err = errHold
		}
	}
	if led { // nobody knows whether the tenant's machine was told to begin
		return errors.Join(err, held.Reset(), conn.Close())
	}
	return errors.Join(err, held.Resume(), conn.Close())
}

func answerHold(way net.Conn, failed error) error {
	var a holdAnswer
	if failed != nil {
		a = holdAnswer{failed.Error(), errhint.Of(failed)}
	}
	return json.NewEncoder(way).Encode(a)
}
