package quicprobe

import "time"

// Report is what a probe learned of a server. A field that is nil or empty was not learned; Notes says why.
type Report struct {
	// Server is HOST:PORT as it was asked for, Address what was probed.
	Server  string `json:"server"`
	Address string `json:"address"`
	// Insecure says that nobody checked the server's certificate.
	Insecure bool `json:"insecure"`
	// Offered are the versions that the server lists in a version negotiation, such as "v1", "v2", "draft-29"; empty
	// where it answered none. Version is the one of the handshake.
	Offered []string `json:"offered"`
	Version string   `json:"version"`
	ALPN    string   `json:"alpn"`
	// Retry says that the server made the client prove its address first (RFC 9000, section 8.1.2).
	Retry bool `json:"retry"`
	// RTT is the shortest round trip seen.
	RTT           time.Duration `json:"rtt_ns"`
	Parameters    *Parameters   `json:"parameters"`
	ConnectionIDs ConnectionIDs `json:"connection_ids"`
	Paths         []PathReport  `json:"paths"`
	// NewPort and NewAddress are one change each, as a NAT makes it.
	NewPort    *Rebinding `json:"new_port"`
	NewAddress *Rebinding `json:"new_address"`
	// Rotations are round-robin over so many addresses and ports; PathsAtOnce is the most that held, 0 where unknown.
	Rotations   []Rotation  `json:"rotations"`
	PathsAtOnce int         `json:"paths_at_once"`
	Throughput  *Throughput `json:"throughput"`
	// Early is whether sessions survive that change from their beginning on.
	Early *Early `json:"early"`
	// Distrusts says after what the server starts slowly again, since it does not carry its congestion state over (RFC
	// 9000, section 9.4): "nothing", "addresses" (new ones, but not new ports) or "changes" (new ports too); empty where
	// unknown. It is drawn from the cases of one period.
	Distrusts string `json:"distrusts"`
	// Sent and Received are the UDP payload of the whole probe, in bytes.
	Sent     int64 `json:"sent"`
	Received int64 `json:"received"`
	// Stopped says what ended the probe early.
	Stopped string   `json:"stopped,omitempty"`
	Notes   []string `json:"notes"`
	Advice  Advice   `json:"advice"`
}

// Parameters are transport parameters of the server (RFC 9000, section 18.2).
type Parameters struct {
	DisableActiveMigration  bool              `json:"disable_active_migration"`
	ActiveConnectionIDLimit uint64            `json:"active_connection_id_limit"`
	PreferredAddress        *PreferredAddress `json:"preferred_address"`
	// MaxIdleTimeout is 0 where the server sets none.
	MaxIdleTimeout    time.Duration `json:"max_idle_timeout_ns"`
	MaxUDPPayloadSize int64         `json:"max_udp_payload_size"`
}

// PreferredAddress is where the server would rather have the client go on (RFC 9000, section 9.6).
type PreferredAddress struct {
	IPv4 string `json:"ipv4,omitempty"`
	IPv6 string `json:"ipv6,omitempty"`
}

// ConnectionIDs are those that the server gave for the client to use: how many, and their length in bytes.
type ConnectionIDs struct {
	Given  int `json:"given"`
	Length int `json:"length"`
}

// PathReport is one of the paths that the probe used.
type PathReport struct {
	Name     string `json:"name"`
	Observer string `json:"observer"`
	// MTU is the largest IP packet in bytes, 0 where unknown.
	MTU int `json:"mtu"`
	// Exit is the address that the STUN server saw; empty where none was asked or it did not answer.
	Exit string `json:"exit,omitempty"`
}

// Rebinding is one change of the client's address or port while a connection runs.
type Rebinding struct {
	// From and To are the paths before and after.
	From string `json:"from"`
	To   string `json:"to"`
	// Survived says that the server answered to the new address or port, again and again; Why says what happened instead.
	Survived bool   `json:"survived"`
	Why      string `json:"why,omitempty"`
	// After is how long it took until the server's first datagram arrived there.
	After time.Duration `json:"after_ns"`
}

// Rotation is a connection that changes over a number of addresses and ports in turn.
type Rotation struct {
	Paths int `json:"paths"`
	// HeardOn is on how many of them the server answered while they were in use.
	HeardOn int `json:"heard_on"`
	// Slowest is the longest time from a change until the server answered there.
	Slowest time.Duration `json:"slowest_ns"`
	Held    bool          `json:"held"`
	Why     string        `json:"why,omitempty"`
}

// Throughput is what a download keeps of its speed while the client's address changes.
type Throughput struct {
	// Get is the path that was asked for.
	Get string `json:"get"`
	// Bits is the median speed without changes, in bit/s.
	Bits float64 `json:"bits_per_second"`
	// Settle is how long a download takes to come to that speed; 0 where it was too short to say.
	Settle time.Duration `json:"settle_ns"`
	Cases  []Case        `json:"cases"`
	// HoldsPort and HoldsAddress are the shortest periods that kept 90%, such as "100ms"; empty where none did.
	HoldsPort    string `json:"holds_port"`
	HoldsAddress string `json:"holds_address"`
}

// Case is one period, with new ports or new addresses.
type Case struct {
	// Change is "port" or "address".
	Change string `json:"change"`
	Paths  int    `json:"paths"`
	// Every is the period between changes.
	Every    string  `json:"every"`
	Switches int     `json:"switches"`
	Bits     float64 `json:"bits_per_second"`
	// Ratio is the speed as a part of that without changes, just before and after; above 1 is faster.
	Ratio float64 `json:"ratio"`
	// Survived says that the server still answered after it; Why says what happened instead.
	Survived bool   `json:"survived"`
	Why      string `json:"why,omitempty"`
}

// held reports whether a session keeps most of its speed at that period, and lives.
func (c Case) held() bool { return c.Survived && c.Ratio >= holds }

// Early is a number of sessions that change from their first datagram on, as those of heddle split do without --settle;
// the others of a probe change nothing before they are open.
type Early struct {
	// Every is the period between changes, Paths the number of addresses and ports.
	Every string `json:"every"`
	Paths int    `json:"paths"`
	// Tried is how many sessions were begun; the last of them is the one that died.
	Tried    int    `json:"tried"`
	Survived bool   `json:"survived"`
	Why      string `json:"why,omitempty"`
	// Settled is how long the downloads of the probe change nothing.
	Settled time.Duration `json:"settled_ns"`
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
	// Split says whether to split sessions with this server at all.
	Split bool `json:"split"`
	// Paths, Every and Schedule are as the flags of heddle split have them; Paths is the most to give.
	Paths    int    `json:"paths"`
	Every    string `json:"every,omitempty"`
	Schedule string `json:"schedule,omitempty"`
	// Settle is how long a session should not change at its beginning; 0 for no matter.
	Settle time.Duration `json:"settle_ns,omitempty"`
	// Flags are the flags of heddle split that say so.
	Flags []string `json:"flags"`
	// Words are the reasons, a sentence each.
	Words []string `json:"words"`
}
