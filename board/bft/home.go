package bft

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cometbft/cometbft/crypto/ed25519"
	"github.com/cometbft/cometbft/p2p"
	"github.com/cometbft/cometbft/privval"
	"github.com/cometbft/cometbft/types"

	"heddle/board"
	"heddle/board/space"
	"heddle/identity"
	"heddle/internal/atomicfile"
	"heddle/path"
)

// Files in a replica's home.
const (
	fileReplica   = "replica.json"
	fileGenesis   = "genesis.json"
	fileIdentity  = "identity.pem"         // towards clients
	fileNode      = "node_key.json"        // towards replicas
	fileValidator = "validator_key.json"   // signs votes
	fileVotes     = "validator_state.json" // its last vote, so that it never votes twice
	dirData       = "data"
	dirSnapshots  = "snapshots" // below dirData
)

// Peer is another replica, as configured in one replica.
type Peer struct {
	Node    string `json:"node"`    // CometBFT's ID of its key
	Address string `json:"address"` // HOST:PORT towards replicas
}

// settings is a replica's configuration, which its owner may change while it does not run.
type settings struct {
	Index int `json:"replica"`
	// Listen is the address for clients and ListenPeers for replicas: HOST:PORT, or :PORT for every address.
	Listen      string `json:"listen"`
	ListenPeers string `json:"listen_peers"`
	Peers       []Peer `json:"peers"`
}

// Plan is the input of [Create].
type Plan struct {
	Dir string // must not contain replicas yet; replica I gets Dir/I
	// Hosts lists each replica's machine. Replicas on one machine count up from Port and PeerPort.
	Hosts          []string
	Port, PeerPort int
	Members        []identity.Key // nil admits everybody
	Limits         space.Limits
}

// Create makes the homes of 3f+1 new replicas with one genesis, and returns what clients need. It fails if a home exists.
func Create(plan Plan) (board.Reference, error) {
	n := len(plan.Hosts)
	f, err := faults(n)
	if err != nil {
		return board.Reference{}, err
	}
	g := genesis{Limits: plan.Limits, Members: plan.Members}
	_, _ = rand.Read(g.Name[:]) // it cannot fail
	if _, err := space.New(g.config()); err != nil {
		return board.Reference{}, &path.Error{What: "limits of the board", Why: err.Error()}
	}
	reference := board.Reference{Space: g.Name, Faults: f}
	doc := &types.GenesisDoc{ChainID: "heddle-" + g.Name.String()[:16], GenesisTime: time.Now().UTC().Truncate(time.Millisecond), InitialHeight: 1, ConsensusParams: consensusParams(g.Limits)}
	peers := make([]Peer, n)
	used := map[string]int{}
	ports := make([]int, n)
	for i, host := range plan.Hosts {
		ports[i] = used[host]
		used[host]++
		home := filepath.Join(plan.Dir, strconv.Itoa(i))
		keys, err := makeKeys(home)
		if err != nil {
			return board.Reference{}, err
		}
		peers[i] = Peer{Node: string(keys.node), Address: net.JoinHostPort(host, strconv.Itoa(plan.PeerPort+ports[i]))}
		reference.Replicas = append(reference.Replicas, board.Replica{Key: keys.client, Address: net.JoinHostPort(host, strconv.Itoa(plan.Port+ports[i]))})
		g.Replicas = append(g.Replicas, genesisReplica{keys.client, string(keys.node)})
		doc.Validators = append(doc.Validators, types.GenesisValidator{PubKey: keys.validator, Power: 1, Name: "replica-" + strconv.Itoa(i)})
	}
	if doc.AppState, err = json.Marshal(g); err != nil {
		return board.Reference{}, err
	}
	if err := doc.ValidateAndComplete(); err != nil {
		return board.Reference{}, fmt.Errorf("genesis: %w", err)
	}
	for i, host := range plan.Hosts {
		home := filepath.Join(plan.Dir, strconv.Itoa(i))
		if err := doc.SaveAs(filepath.Join(home, fileGenesis)); err != nil {
			return board.Reference{}, err
		}
		s := settings{Index: i, Listen: listenAt(host, plan.Port+ports[i]), ListenPeers: listenAt(host, plan.PeerPort+ports[i]), Peers: peers}
		if err := atomicfile.WriteJSON(filepath.Join(home, fileReplica), s); err != nil {
			return board.Reference{}, err
		}
	}
	return reference, nil
}

// listenAt listens on the host only if it is an address, since a name may be that of a NAT.
func listenAt(host string, port int) string {
	if net.ParseIP(host) == nil {
		host = ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

type publicKeys struct {
	client    identity.Key
	node      p2p.ID
	validator ed25519.PubKey
}

func makeKeys(home string) (keys publicKeys, err error) {
	if _, err := os.Stat(home); !errors.Is(err, fs.ErrNotExist) {
		return keys, &path.Error{What: home, Why: "it is there already", Hint: "a replica's keys are made once; take another directory"}
	}
	if err := os.MkdirAll(filepath.Join(home, dirData), 0o700); err != nil {
		return keys, err
	}
	id, _, err := identity.LoadOrCreate(filepath.Join(home, fileIdentity))
	if err != nil {
		return keys, err
	}
	node := &p2p.NodeKey{PrivKey: ed25519.GenPrivKey()}
	if err := node.SaveAs(filepath.Join(home, fileNode)); err != nil {
		return keys, err
	}
	validator := ed25519.GenPrivKey()
	privval.NewFilePV(validator, filepath.Join(home, fileValidator), filepath.Join(home, fileVotes)).Save()
	return publicKeys{id.Key(), node.ID(), validator.PubKey().(ed25519.PubKey)}, nil
}

// home is the content of a replica's directory.
type home struct {
	dir       string
	settings  settings
	genesis   genesis
	doc       *types.GenesisDoc
	sum       [sha256.Size]byte // of the genesis file
	identity  identity.Identity
	node      *p2p.NodeKey
	validator *privval.FilePV
}

// openHome reads a home and checks that its parts belong together.
func openHome(dir string) (*home, error) {
	wrong := func(file string, err error) error {
		return &path.Error{What: filepath.Join(dir, file), Why: "it is no file of a replica", Err: err, Hint: "heddle-board-bft init makes the homes of replicas"}
	}
	h := &home{dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, fileReplica))
	if err != nil {
		return nil, wrong(fileReplica, err)
	}
	if err := json.Unmarshal(text, &h.settings); err != nil {
		return nil, wrong(fileReplica, err)
	}
	if text, err = os.ReadFile(filepath.Join(dir, fileGenesis)); err != nil {
		return nil, wrong(fileGenesis, err)
	}
	h.sum = sha256.Sum256(text)
	if h.doc, err = types.GenesisDocFromJSON(text); err != nil {
		return nil, wrong(fileGenesis, err)
	}
	if h.genesis, err = parseGenesis(h.doc.AppState); err != nil {
		return nil, err
	}
	if h.identity, err = identity.Load(filepath.Join(dir, fileIdentity)); err != nil {
		return nil, err
	}
	if h.node, err = p2p.LoadNodeKey(filepath.Join(dir, fileNode)); err != nil {
		return nil, wrong(fileNode, err)
	}
	for _, file := range []string{fileValidator, fileVotes} { // LoadFilePV would exit the process
		if text, err := os.ReadFile(filepath.Join(dir, file)); err != nil || !json.Valid(text) {
			return nil, wrong(file, err)
		}
	}
	h.validator = privval.LoadFilePV(filepath.Join(dir, fileValidator), filepath.Join(dir, fileVotes))
	return h, h.check()
}

func (h *home) check() error {
	i := h.settings.Index
	if i < 0 || i >= len(h.genesis.Replicas) || len(h.settings.Peers) != len(h.genesis.Replicas) {
		return &path.Error{What: filepath.Join(h.dir, fileReplica), Why: fmt.Sprintf("it names replica %d and %d peers, and the genesis has %d replicas", i, len(h.settings.Peers), len(h.genesis.Replicas))}
	}
	own := h.genesis.Replicas[i]
	if own.Key != h.identity.Key() || own.Node != string(h.node.ID()) || !bytes.Equal(h.doc.Validators[i].PubKey.Bytes(), h.validator.Key.PubKey.Bytes()) {
		return &path.Error{What: h.dir, Why: fmt.Sprintf("its keys are not those of replica %d of the genesis", i), Hint: "put back the files that heddle-board-bft init made"}
	}
	return nil
}
