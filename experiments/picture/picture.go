package picture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"heddle/internal/netutil"
	"heddle/internal/text"
	"heddle/lab"
	"heddle/lab/peer"
)

// Options control what is sent, and how.
type Options struct {
	Heddle   string    // path of the binary
	Out      string    // existing directory for the pictures
	Bytes    int       // approximate size of the picture
	Ways     []Way     // nil for all of [Ways]
	Progress io.Writer // takes a line for each observer
}

// Way is a schedule and a share scheme.
type Way struct{ Schedule, Shares string }

// Ways are the paper's, fast and strict, and ours.
func Ways() []Way {
	return []Way{{"fast", "none"}, {"strict", "none"}, {"weighted", "none"}, {"strict", "3of4"}, {"strict", "shamir:3of4"}, {"strict", "xor:4"}}
}

// Seen is what an observer behind one node could rebuild.
type Seen struct {
	Schedule string  `json:"schedule"`
	Shares   string  `json:"shares"`
	Bytes    int     `json:"bytes"`
	Path     string  `json:"path"`
	Stream   float64 `json:"stream"` // share of the stream whose bytes, or shares of them, passed there
	Right    float64 `json:"right"`  // share of the pixels that equal the original
	PSNR     float64 `json:"psnr_db"`
	File     string  `json:"file"`
}

// branches are four paths that differ in rate and delay, as in the paper.
func branches() []lab.Branch {
	ms := time.Millisecond
	return []lab.Branch{
		{Name: "frankfurt", Near: 18 * ms, Far: 12 * ms, Rate: 50_000_000}, {Name: "california", Near: 80 * ms, Far: 68 * ms, Rate: 30_000_000},
		{Name: "tokyo", Near: 118 * ms, Far: 106 * ms, Rate: 20_000_000}, {Name: "sydney", Near: 148 * ms, Far: 137 * ms, Rate: 10_000_000},
	}
}

var (
	endpoint = netip.AddrPortFrom(lab.ServerAddr, peer.StreamPort)
	local    = netip.MustParseAddrPort("127.0.0.1:2222")
	program  = netip.MustParseAddrPort("127.0.0.1:9000")
)

// Run sends the picture by each way, and draws what an observer behind each node sees.
func Run(ctx context.Context, o Options) (all []Seen, err error) {
	if o.Ways == nil {
		o.Ways = Ways()
	}
	work, err := os.MkdirTemp("", "heddle-picture-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	in, err := lab.Up(ctx, lab.Overlay("picture", branches()...), lab.Options{Seed: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, in.Down()) }()
	original := bmp(Draw(o.Bytes))
	file := filepath.Join(o.Out, "original.bmp")
	if err := os.WriteFile(file, original, 0o600); err != nil {
		return nil, err
	}
	s, err := newSender(ctx, in, o, work)
	if err != nil {
		return nil, err
	}
	for _, way := range o.Ways {
		dir, err := s.send(ctx, way, original)
		if err != nil {
			return all, fmt.Errorf("%s, %s: %w", way.Schedule, way.Shares, err)
		}
		for _, branch := range branches() {
			seen, err := s.rebuild(way, branch.Name, dir, file)
			if err != nil {
				return all, err
			}
			fmt.Fprintf(o.Progress, "%s, shares %s, %s: %s of the stream, %s of the pixels\n", way.Schedule, way.Shares, branch.Name, text.Percent(seen.Stream), text.Percent(seen.Right))
			all = append(all, seen)
		}
	}
	return all, nil
}

type sender struct {
	options Options
	work    string
	made    *peer.Overlay
	via     []string // flags for the paths
	keylog  string
	arrived chan int
}

func newSender(ctx context.Context, in *lab.Instance, o Options, work string) (*sender, error) {
	s := &sender{options: o, work: work, keylog: filepath.Join(work, "keylog"), arrived: make(chan int, 1)}
	var err error
	if s.made, err = peer.NewOverlay(o.Heddle, work, in); err != nil {
		return nil, err
	}
	if err := s.listen(ctx); err != nil {
		return nil, err
	}
	if _, err = s.made.StreamServer(ctx, "server", endpoint, "stream", "serve", "--name", "picture", "--to", program.String()); err != nil {
		return nil, err
	}
	for i, branch := range branches() {
		if _, err := s.made.Node(ctx, branch.Name); err != nil {
			return nil, err
		}
		if _, err := s.made.Pass(ctx, branch.Name, branch.Name, lab.NodeAddr(i), "--to", endpoint.String()); err != nil {
			return nil, err
		}
		s.via = append(s.via, peer.Over(branch.Name)...)
	}
	return s, nil
}

// listen receives pictures at the server.
func (s *sender) listen(ctx context.Context) error {
	var listener net.Listener
	err := s.made.Host("server").Do(func() (err error) {
		listener, err = net.Listen("tcp", program.String())
		return err
	})
	if err != nil {
		return err
	}
	go netutil.Serve(ctx, listener, func(conn net.Conn) {
		n, _ := io.Copy(io.Discard, conn)
		s.arrived <- int(n)
		conn.Close()
	})
	return nil
}

const patience = 2 * time.Minute

// send sends the picture, and returns the directory with the captures from behind each node.
func (s *sender) send(ctx context.Context, way Way, picture []byte) (dir string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if dir, err = os.MkdirTemp(s.work, "captures-"); err != nil {
		return "", err
	}
	places := map[string]string{}
	for _, branch := range branches() {
		places[branch.Name] = branch.Name + "/core"
	}
	stop, err := s.made.CaptureAll(ctx, dir, places)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, stop()) }()
	dial, err := s.made.StreamDial(ctx, "picture", local, "server", endpoint,
		append([]string{"--schedule", way.Schedule, "--shares", way.Shares, "--warm", "0", "--keylog", s.keylog}, s.via...)...)
	if err != nil {
		return "", err
	}
	defer dial.Stop()
	var conn net.Conn
	err = s.made.Host("client").Do(func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", local.String())
		return err
	})
	if err != nil {
		return "", err
	}
	_, err = conn.Write(picture)
	if err = errors.Join(err, conn.Close()); err != nil {
		return "", errors.Join(err, errors.New(dial.Log()))
	}
	select {
	case n := <-s.arrived:
		if n != len(picture) {
			return "", fmt.Errorf("%d of %d bytes arrived\n%s", n, len(picture), dial.Log())
		}
		return dir, nil
	case <-ctx.Done():
		return "", fmt.Errorf("the picture does not arrive: %w\n%s", ctx.Err(), dial.Log())
	}
}

// preface is one byte that `heddle stream dial` sends before a program's bytes: the request.
const preface = 1

// rebuild runs `heddle observe reconstruct` for what one observer saw.
func (s *sender) rebuild(way Way, node, dir, file string) (Seen, error) {
	name := fmt.Sprintf("%s-%s-%s.png", way.Schedule, strings.ReplaceAll(way.Shares, ":", "-"), node)
	cmd := exec.Command(s.options.Heddle, "observe", "reconstruct", dir, "--path", node, "--keylog", s.keylog,
		"--as", "image", "--like", file, "--skip", strconv.Itoa(preface), "--out", filepath.Join(s.options.Out, name), "--json")
	out, err := cmd.Output()
	if err != nil {
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			err = fmt.Errorf("%w\n%s", err, failed.Stderr)
		}
		return Seen{}, err
	}
	var answer struct {
		Seen   float64 `json:"seen_bytes"`
		Length float64 `json:"length_bytes"`
		Pixels float64 `json:"pixels"`
		Right  float64 `json:"right_pixels"`
		PSNR   float64 `json:"psnr_db"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return Seen{}, err
	}
	return Seen{Schedule: way.Schedule, Shares: way.Shares, Bytes: s.options.Bytes, Path: node, Stream: answer.Seen / max(answer.Length, 1),
		Right: answer.Right / max(answer.Pixels, 1), PSNR: answer.PSNR, File: name}, nil
}
