package quicprobe

import "time"

// Report is what a probe learned of a server. Nil or empty means unknown; Notes says why.
type Report struct {
	Server   string `json:"server"`   // HOST:PORT as asked for
	Address  string `json:"address"`  // the address probed
	Insecure bool   `json:"insecure"` // the certificate was not checked
	// Offered are the versions listed in a version negotiation, such as "v1" or "draft-29"; empty without an answer.
	Offered       []string      `json:"offered"`
	Version       string        `json:"version"` // of the handshake
	ALPN          string        `json:"alpn"`
	Retry         bool          `json:"retry"`  // the client had to prove its address (RFC 9000, section 8.1.2)
	RTT           time.Duration `json:"rtt_ns"` // the shortest seen
	Parameters    *Parameters   `json:"parameters"`
	ConnectionIDs ConnectionIDs `json:"connection_ids"`
	Paths         []PathReport  `json:"paths"`
	NewPort       *Rebinding    `json:"new_port"`      // one change of port, as by a NAT
	NewAddress    *Rebinding    `json:"new_address"`   // one change of address
	Rotations     []Rotation    `json:"rotations"`     // round-robin over several addresses and ports
	PathsAtOnce   int           `json:"paths_at_once"` // the most that held, 0 if unknown
	Throughput    *Throughput   `json:"throughput"`
	Early         *Early        `json:"early"` // whether sessions survive changes from their beginning on
	// Distrusts says what makes the server restart its congestion control (RFC 9000, section 9.4): "nothing", "addresses" (new
	// ones, but not new ports) or "changes" (new ports too); empty if unknown. It compares cases of one period.
	Distrusts string `json:"distrusts"`
	Sent      int64  `json:"sent"`              // UDP payload of the whole probe in bytes
	Received  int64  `json:"received"`          // likewise
	Stopped   string `json:"stopped,omitempty"` // what ended the probe early
	// Vanished is what the probe did when the server, after an earlier connection, took none any more.
	Vanished string   `json:"vanished,omitempty"`
	Notes    []string `json:"notes"`
	Advice   Advice   `json:"advice"`
}

// Parameters are transport parameters of the server (RFC 9000, section 18.2).
type Parameters struct {
	DisableActiveMigration  bool              `json:"disable_active_migration"`
	ActiveConnectionIDLimit uint64            `json:"active_connection_id_limit"`
	PreferredAddress        *PreferredAddress `json:"preferred_address"`
	MaxIdleTimeout          time.Duration     `json:"max_idle_timeout_ns"` // 0 if the server sets none
	MaxUDPPayloadSize       int64             `json:"max_udp_payload_size"`
}

// PreferredAddress is where the server asks the client to continue (RFC 9000, section 9.6).
type PreferredAddress struct {
	IPv4 string `json:"ipv4,omitempty"`
	IPv6 string `json:"ipv6,omitempty"`
}

// ConnectionIDs are the server's connection ids for the client: how many, and their length in bytes.
type ConnectionIDs struct {
	Given  int `json:"given"`
	Length int `json:"length"`
}

// PathReport is one path of the probe.
type PathReport struct {
	Name     string `json:"name"`
	Observer string `json:"observer"`
	MTU      int    `json:"mtu"`            // largest IP packet in bytes, 0 if unknown
	Exit     string `json:"exit,omitempty"` // address that the STUN server saw, if any
}

// Tries is how often a step of the probe was tried, as its confidence. Networks lose packets, so one failure proves nothing.
type Tries struct {
	Tried int `json:"tried"`
	Good  int `json:"good"` // how many had the outcome that a client wants
}

// Rebinding is one change of the client's address or port while a connection runs.
type Rebinding struct {
	From     string        `json:"from"`          // path before
	To       string        `json:"to"`            // path after
	Survived bool          `json:"survived"`      // the server answered repeatedly at the new place
	Why      string        `json:"why,omitempty"` // what happened instead
	After    time.Duration `json:"after_ns"`      // time until the server's first datagram arrived there
	Tries
}

// Rotation is a connection that changes between several addresses and ports in turn.
type Rotation struct {
	Paths   int           `json:"paths"`
	HeardOn int           `json:"heard_on"`   // how many of them the server answered on while in use
	Slowest time.Duration `json:"slowest_ns"` // longest time from a change until an answer there
	Held    bool          `json:"held"`
	Why     string        `json:"why,omitempty"`
	Tries
}

// Throughput is how much of its speed a download keeps while the client's address changes.
type Throughput struct {
	Get          string        `json:"get"`             // URL path of the download
	Bits         float64       `json:"bits_per_second"` // median speed without changes, in bit/s
	Settle       time.Duration `json:"settle_ns"`       // time for a download to reach that speed; 0 if unknown
	Cases        []Case        `json:"cases"`
	HoldsPort    string        `json:"holds_port"`    // shortest period that kept 90%, such as "100ms"; empty: none
	HoldsAddress string        `json:"holds_address"` // likewise
}

// Case is one period, with new ports or new addresses.
type Case struct {
	Change   string  `json:"change"` // "port" or "address"
	Paths    int     `json:"paths"`
	Every    string  `json:"every"` // period between changes
	Switches int     `json:"switches"`
	Bits     float64 `json:"bits_per_second"`
	Ratio    float64 `json:"ratio"`         // speed relative to downloads without changes just before and after
	Survived bool    `json:"survived"`      // the server still answered afterwards
	Why      string  `json:"why,omitempty"` // what happened instead
	Tries
}

// held reports whether a session survives and keeps most of its speed.
func (c Case) held() bool { return c.Survived && c.Ratio >= holds }

// Early is sessions that change as soon as the handshake is confirmed, like those of heddle split without --settle. The
// probe's downloads change later.
type Early struct {
	Every    string        `json:"every"`    // period between changes
	Paths    int           `json:"paths"`    // number of addresses and ports
	Survived bool          `json:"survived"` // all sessions but one at most
	Why      string        `json:"why,omitempty"`
	Settled  time.Duration `json:"settled_ns"` // how long the probe's downloads change nothing
	Tries
}

// What a server may distrust.
const (
	distrustsNothing   = "nothing"
	distrustsAddresses = "addresses"
	distrustsChanges   = "changes"
)

// The changes of a [Case].
const (
	changePort    = "port"
	changeAddress = "address"
)

// Advice is what the probe recommends.
type Advice struct {
	Split    bool          `json:"split"`               // whether to split sessions with this server at all
	Paths    int           `json:"paths"`               // the most paths to use, as for heddle split
	Every    string        `json:"every,omitempty"`     // as for heddle split
	Schedule string        `json:"schedule,omitempty"`  // as for heddle split
	Settle   time.Duration `json:"settle_ns,omitempty"` // how long a session should not change at its beginning; 0: not needed
	Flags    []string      `json:"flags"`               // flags of heddle split for this advice
	Words    []string      `json:"words"`               // the reasons, a sentence each
}
