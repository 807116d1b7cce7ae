package config

import (
	"fmt"
	"net"
	"strings"

	"heddle/board"
	"heddle/identity"
	"heddle/path"
	"heddle/proxy/targets"
	"heddle/proxy/users"
	"heddle/stripe/transfer"
)

// Default addresses for streams and for files. One device may listen on both.
const (
	DefaultStreamListen = ":4470"
	DefaultRecvListen   = ":4471"
)

// AnyKey admits every key.
const AnyKey = "any"

// StreamDial is a [[dial]] table, or the flags of `heddle stream dial`.
type StreamDial struct {
	// Name is the service to request from the peer, and the name in `heddle status`.
	Name       string     `toml:"name"`
	Listen     string     `toml:"listen" help:"where programs connect to, <HOST:PORT>"`
	Socks      string     `toml:"socks" help:"offer a SOCKS5 proxy on <HOST:PORT>, whose other side is the peer"`
	SocksUsers users.File `toml:"socks-users" help:"let only the users in <FILE> use that proxy, with a password; heddle masque user add makes one"`
	Warm       int        `toml:"warm" help:"how many sessions are dialled ahead"`
	Stripe
}

// DefaultStreamDial returns the default settings.
func DefaultStreamDial() StreamDial {
	return StreamDial{Warm: 1, Stripe: DefaultStripe()}
}

const maxWarm = 64

func (d StreamDial) problems() problems {
	wrong := d.Stripe.problems()
	wrong.add("name", CheckSessionName(d.Name))
	if d.Listen == "" && d.Socks == "" {
		wrong.say("listen", "nothing says where programs connect to", "such as 127.0.0.1:2222, or a SOCKS5 proxy with socks")
	}
	if d.Listen != "" {
		wrong.add("listen", checkListen(d.Listen))
	}
	if d.Socks != "" {
		wrong.add("socks", checkListen(d.Socks))
	}
	wrong.add("socks-users", checkSocksUsers(d.Socks, d.SocksUsers))
	if d.Warm < 0 || d.Warm > maxWarm {
		wrong.say("warm", fmt.Sprintf("%d sessions cannot be kept warm", d.Warm), fmt.Sprintf("0 to %d", maxWarm))
	}
	return wrong
}

// checkSocksUsers checks the users' file of a SOCKS5 proxy.
func checkSocksUsers(socks string, file users.File) error {
	if file != "" && socks == "" {
		return &path.Error{What: "socks-users", Why: "it is for a SOCKS5 proxy, and none is offered", Hint: "add socks, or leave it out"}
	}
	_, err := file.Load()
	return err
}

// Check returns one error, named by its flag.
func (d StreamDial) Check() error { return d.problems().first() }

// SessionName is the name in `heddle status` and `heddle down`.
func (d StreamDial) SessionName() string { return "dial-" + d.Name }

// ServiceName is the service to request from the peer.
func (d StreamDial) ServiceName() string { return d.Name }

// beside makes file names relative to the working directory.
func (s *Stripe) beside(dir string) {
	s.Secret = besideSecrets(dir, s.Secret)
	besideFiles(dir, &s.Identity, &s.Keylog)
	besideBoard(dir, &s.Board)
}

// Admission says who may connect to a device, and where: shared by `heddle stream serve` and `heddle recv`.
type Admission struct {
	Name        string   `toml:"name" help:"what peers ask for, a <NAME>"`
	Listen      string   `toml:"listen" help:"where peers come to, <[HOST]:PORT>"`
	Allow       []string `toml:"allow" help:"let in the holder of this <KEY>; any lets in everybody"`
	Identity    string   `toml:"identity" help:"the <FILE> of this device's private key" complete:"file"`
	MaxSessions int      `toml:"max-sessions" help:"how many sessions are served at one time"`
	Keylog      string   `toml:"keylog" help:"write the keys of the TLS inside to <FILE>, for experiments" complete:"file"`
	Backend     string   `toml:"backend" old:"plane" help:"how peers come: stripe, or mptcp for the kernel backends"`
	// Board is where the device registers, KEY@HOST:PORT or a file; empty for none.
	Board string `toml:"board" help:"register there: the board, <KEY@HOST:PORT> or a file"`
	// Address has the addresses for the board, HOST:PORT each; empty is where it listens.
	Address []string `toml:"address" help:"where peers reach this device, <HOST:PORT>, for the board"`
}

func defaultAdmission() Admission {
	return Admission{Backend: BackendStripe, Name: "files", Listen: DefaultStreamListen, MaxSessions: 256}
}

func (a Admission) check(wrong problems) {
	wrong.add("name", CheckSessionName(a.Name))
	wrong.add("listen", checkListen(a.Listen))
	if len(a.Allow) == 0 {
		wrong.say("allow", "nobody may come in", "give the key of each peer, which its `heddle node key` prints; or any, for whoever has a key")
	}
	for _, text := range a.Allow {
		if text != AnyKey {
			_, err := identity.ParseKey(text)
			wrong.add("allow", hinted(err, "the peer's `heddle node key` prints its key"))
		}
	}
	if a.Backend != BackendStripe && a.Backend != BackendMPTCP {
		wrong.say("backend", fmt.Sprintf("nobody comes by a backend %q", a.Backend), "stripe, or mptcp, which is for mptcp-nat too")
	}
	if a.Board != "" {
		_, err := board.LoadReference(a.Board)
		wrong.add("board", err)
		host, _, err := net.SplitHostPort(a.Listen)
		if ip := net.ParseIP(host); err == nil && len(a.Address) == 0 && (ip == nil || ip.IsUnspecified()) {
			wrong.say("address", "others could not be told where this device is: it listens on all addresses", "name one with address, HOST:PORT")
		}
	}
	for _, text := range a.Address {
		wrong.add("address", checkHostPort(text, "where peers reach this device"))
	}
	if a.MaxSessions < 1 {
		wrong.say("max-sessions", fmt.Sprintf("%d is less than 1", a.MaxSessions), "leave it out for the default")
	}
}

// Accept returns the check of a peer's key.
func (a Admission) Accept() (func(identity.Key) error, error) {
	known := map[identity.Key]bool{}
	for _, text := range a.Allow {
		if text == AnyKey {
			return func(identity.Key) error { return nil }, nil
		}
		key, err := identity.ParseKey(text)
		if err != nil {
			return nil, err
		}
		known[key] = true
	}
	return func(key identity.Key) error {
		if known[key] {
			return nil
		}
		return fmt.Errorf("the key %v is not among those that may come in", key)
	}, nil
}

// StreamServe is a [[serve]] table, or the flags of `heddle stream serve`.
type StreamServe struct {
	Admission
	To      string   `toml:"to" help:"the program, <HOST:PORT> or unix:FILE"`
	Socks   bool     `toml:"socks" help:"be a SOCKS5 proxy for peers"`
	AllowTo []string `toml:"allow-to" help:"with --socks, lead to these addresses too, <CIDR[:PORT]>"`
	DenyTo  []string `toml:"deny-to" help:"with --socks, do not lead to these addresses, <CIDR[:PORT]>"`
}

// DefaultStreamServe returns the default settings.
func DefaultStreamServe() StreamServe { return StreamServe{Admission: defaultAdmission()} }

func (s StreamServe) problems() problems {
	wrong := problems{}
	s.Admission.check(wrong)
	switch file, unix := strings.CutPrefix(s.To, "unix:"); {
	case s.To == "" && !s.Socks:
		wrong.say("to", "nothing says what is served", "a program, such as 127.0.0.1:22, or socks for a SOCKS5 proxy")
	case unix && file == "":
		wrong.say("to", "unix: names no file", "such as unix:/run/app.sock")
	case s.To != "" && !unix:
		wrong.add("to", checkHostPort(s.To, "such as 127.0.0.1:22 or unix:/run/app.sock"))
	}
	_, err := targets.New(nil, s.DenyTo)
	wrong.add("deny-to", err)
	_, err = targets.New(s.AllowTo, nil)
	wrong.add("allow-to", err)
	if !s.Socks && len(s.AllowTo)+len(s.DenyTo) > 0 {
		wrong.say("allow-to", "it is for a SOCKS5 proxy, and none is served", "add socks, or leave it out")
	}
	return wrong
}

// Check returns one error, named by its flag.
func (s StreamServe) Check() error { return s.problems().first() }

// SessionName is the name in `heddle status` and `heddle down`.
func (s StreamServe) SessionName() string { return "serve-" + s.Name }

// ServiceName is the service that a peer requests.
func (s StreamServe) ServiceName() string { return s.Name }

// beside makes file names relative to the working directory.
func (a *Admission) beside(dir string) {
	besideFiles(dir, &a.Identity, &a.Keylog)
	besideBoard(dir, &a.Board)
}

// Recv is the flags of `heddle recv`.
type Recv struct {
	Admission
	transfer.ReceiveOptions
}

// DefaultRecv returns the default settings.
func DefaultRecv() Recv {
	r := Recv{Admission: defaultAdmission(), ReceiveOptions: transfer.ReceiveOptions{Into: "."}}
	r.Listen = DefaultRecvListen
	return r
}

// Check returns one error, named by its flag.
func (r Recv) Check() error {
	wrong := problems{}
	r.Admission.check(wrong)
	wrong.add("into", isDir(r.Into))
	if r.MaxBytes < 0 {
		wrong.say("max-bytes", "it is less than 0", "0 is as much as there is room for")
	}
	return wrong.first()
}
