package observe

import (
	"fmt"
	"image/png"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/internal/text"
	"heddle/observe"
	"heddle/observe/decrypt"
	"heddle/observe/reconstruct"
	"heddle/path"
)

// reconstructFlags holds the flags of `heddle observe reconstruct`.
type reconstructFlags struct {
	bind.Printing
	Path    []string `flag:"path" help:"only what the observer <NAME> saw; may be repeated"`
	Keylog  []string `flag:"keylog" help:"the <FILE> with the keys of the stream's connections; may be repeated"`
	As      string   `flag:"as" help:"what to write: image or bytes (unknown bytes are 0)" complete:"image bytes"`
	Like    string   `flag:"like" help:"the picture that was sent, a BMP or PPM <FILE>"`
	Skip    uint64   `flag:"skip" help:"<BYTES> of the stream before the picture; heddle stream dial says one"`
	Out     string   `flag:"out" help:"the <FILE> to write (default: reconstructed.png or .bin)"`
	Session string   `flag:"session" help:"the <ID> of the session, or how it begins (default: the longest)"`
	Down    bool     `flag:"down" help:"what came back, instead of what was sent by who dialled"`
}

func newReconstructCommand() *cobra.Command {
	var f reconstructFlags
	return bind.Flags(&cobra.Command{
		Use:   "reconstruct DIR --keylog FILE",
		Short: "Rebuild what one path has of a striped stream",
		Long: `Rebuild what an observer of one path has of a stream that heddle stream striped,
if the ciphers fall: the pieces that passed there in their places, and nothing
between them. A key log stands for the broken cipher, so this is for streams
that were made with --keylog; without one it opens nothing.

With --as image the stream is taken for the uncompressed picture --like (BMP or
PPM), as if the observer had guessed its size and depth, and drawn; what did not
pass is grey. Of shares, the bytes themselves are drawn.

It prints how much of the stream passed there, and how many pixels are right.
DIR is as for heddle observe report; without --path, all observers' captures are
put together.

MPTCP connections count as striped too, in TLS or in the clear. Where a
subflow's bytes belong follows from the first one alone, and TLS opens only in
order: so the captures of other paths must be in DIR too, but add nothing.`,
		Example: `  heddle observe reconstruct captures --path tokyo --keylog keys --as image --like tux.bmp --out tokyo.png
  heddle observe reconstruct captures --path tokyo --keylog keys --json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return observeReconstruct(cmd, args[0], f) },
	}, &f)
}

// reconstructed is the answer as JSON.
type reconstructed struct {
	Path     []string `json:"path"`
	Session  string   `json:"session"`
	Schedule string   `json:"schedule"`
	Shares   string   `json:"shares"`
	Members  []int    `json:"members"`
	Of       int      `json:"of"`
	Seen     uint64   `json:"seen_bytes"` // of Length bytes: those seen, or whose shares were seen
	Length   uint64   `json:"length_bytes"`
	// Pixels of the picture; Drawn had any byte seen; Right equal the original.
	Pixels int      `json:"pixels,omitempty"`
	Drawn  int      `json:"drawn_pixels,omitempty"`
	Right  int      `json:"right_pixels,omitempty"`
	PSNR   *float64 `json:"psnr_db,omitempty"`
	Out    string   `json:"out,omitempty"`
	Notes  []string `json:"notes,omitempty"`
}

func observeReconstruct(cmd *cobra.Command, dir string, f reconstructFlags) error {
	if err := f.check(); err != nil {
		return cli.Usage(err)
	}
	seen, others, names, notes, err := f.conversations(dir)
	if err != nil {
		return err
	}
	keys, err := f.keys()
	if err != nil {
		return err
	}
	sessions, more := reconstruct.Sessions(seen, keys)
	multipath, evenMore := reconstruct.Multipath(seen, others, keys)
	sessions, notes = append(sessions, multipath...), slices.Concat(notes, more, evenMore)
	s, stream, err := f.choose(sessions)
	if err != nil {
		for _, note := range notes {
			fmt.Fprintln(cmd.ErrOrStderr(), note)
		}
		return err
	}
	answer := reconstructed{Path: names, Session: s.ID, Schedule: s.Schedule, Shares: s.Shares, Members: s.Members, Of: s.Of,
		Seen: stream.Seen(), Length: stream.Length, Out: f.Out, Notes: notes}
	if err := f.write(stream, &answer); err != nil {
		return err
	}
	if f.JSON {
		return cli.WriteJSON(cmd.OutOrStdout(), answer)
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), answer.text())
	return err
}

// check completes the flags.
func (f *reconstructFlags) check() error {
	switch {
	case f.As == "image" && f.Like == "":
		return &path.Error{What: "--as image", Why: "it is not known what kind of picture it is", Hint: "give the picture that was sent with --like"}
	case !slices.Contains([]string{"", "image", "bytes"}, f.As):
		return &path.Error{What: fmt.Sprintf("--as %q", f.As), Why: "that is no way to write it", Hint: "image or bytes"}
	case f.As == "" && f.Out != "":
		return &path.Error{What: "--out " + f.Out, Why: "nothing is written unless --as says what", Hint: "--as image or --as bytes"}
	case f.As == "image" && f.Out == "":
		f.Out = "reconstructed.png"
	case f.As == "bytes" && f.Out == "":
		f.Out = "reconstructed.bin"
	}
	return nil
}

// conversations reads the captures of the chosen observers, and, if needed, of the others.
func (f *reconstructFlags) conversations(dir string) (seen, others []observe.Conversation, names, notes []string, err error) {
	places, err := observe.Places(dir)
	if err != nil {
		return nil, nil, nil, nil, err
	}
	var there []string
	for _, p := range places {
		there = append(there, p.Name)
	}
	for _, wanted := range f.Path {
		if !slices.Contains(there, wanted) {
			return nil, nil, nil, nil, &path.Error{What: "--path " + wanted, Why: "nobody of that name saw anything", Hint: "there are " + strings.Join(there, ", ")}
		}
	}
	var left []observe.Place
	for _, p := range places {
		if len(f.Path) > 0 && !slices.Contains(f.Path, p.Name) {
			left = append(left, p)
			continue
		}
		names = append(names, p.Name)
		if seen, notes, err = readPlace(p, seen, notes); err != nil {
			return nil, nil, nil, nil, err
		}
	}
	if !slices.ContainsFunc(seen, func(c observe.Conversation) bool { return c.Subflow != nil }) {
		return seen, nil, names, notes, nil
	}
	for _, p := range left {
		if others, notes, err = readPlace(p, others, notes); err != nil {
			return nil, nil, nil, nil, err
		}
	}
	return seen, others, names, notes, nil
}

// readPlace adds the conversations of one observer.
func readPlace(p observe.Place, all []observe.Conversation, notes []string) ([]observe.Conversation, []string, error) {
	for _, name := range p.Files {
		found, stopped, err := readConversations(name)
		if err != nil {
			return nil, nil, &path.Error{What: "capture " + name, Err: err}
		}
		if stopped != "" {
			notes = append(notes, name+": "+stopped)
		}
		all = append(all, found...)
	}
	return all, notes, nil
}

func readConversations(name string) ([]observe.Conversation, string, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, "", err
	}
	defer file.Close()
	return observe.Conversations(file)
}

func (f *reconstructFlags) keys() (decrypt.Keys, error) {
	keys, err := decrypt.ReadFiles(f.Keylog...)
	if err != nil {
		return nil, &path.Error{What: "key log", Err: err, Hint: "`heddle stream --keylog` writes one"}
	}
	return keys, nil
}

// choose returns the chosen session, or the longest, and its stream in the direction.
func (f *reconstructFlags) choose(sessions []reconstruct.Session) (best reconstruct.Session, stream reconstruct.Direction, err error) {
	found := false
	for _, s := range sessions {
		d := s.Up
		if f.Down {
			d = s.Down
		}
		if strings.HasPrefix(s.ID, f.Session) && (!found || d.Length > stream.Length) {
			best, stream, found = s, d, true
		}
	}
	switch {
	case !found && len(sessions) > 0:
		var there []string
		for _, s := range sessions {
			there = append(there, s.ID)
		}
		return best, stream, &path.Error{What: "--session " + f.Session, Why: "no session in the captures begins so", Hint: "there are " + strings.Join(there, ", ")}
	case !found:
		return best, stream, &path.Error{What: "captures", Why: "no striped session can be opened in them",
			Hint: "give the --keylog that the stream was made with; the capture must hold the connection from its beginning, and of MPTCP all paths' captures"}
	}
	return best, stream, nil
}

// write writes the requested file.
func (f *reconstructFlags) write(stream reconstruct.Direction, answer *reconstructed) error {
	switch f.As {
	case "bytes":
		const most = 1 << 30
		if stream.Length > most {
			return &path.Error{What: f.Out, Why: fmt.Sprintf("the stream has %d bytes, more than %d", stream.Length, most)}
		}
		bytes, _ := stream.Fill(0, int(stream.Length))
		if err := os.WriteFile(f.Out, bytes, 0o600); err != nil {
			return &path.Error{What: "cannot write", Err: err}
		}
	case "image":
		return f.draw(stream, answer)
	}
	return nil
}

func (f *reconstructFlags) draw(stream reconstruct.Direction, answer *reconstructed) error {
	original, err := os.ReadFile(f.Like)
	if err != nil {
		return &path.Error{What: "--like", Err: err}
	}
	picture, err := reconstruct.Draw(stream, original, f.Skip)
	if err != nil {
		return &path.Error{What: "--like " + f.Like, Err: err, Hint: "give an uncompressed picture: BMP of 24 or 32 bits, or PPM (P6)"}
	}
	answer.Pixels, answer.Drawn, answer.Right, answer.PSNR = picture.Pixels, picture.Drawn, picture.Right, &picture.PSNR
	return writeFile("cannot write", f.Out, 0o600, func(w io.Writer) error { return png.Encode(w, picture.Image) })
}

func (r reconstructed) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: session %.8s, %s, shares %s, %s of %d\n", strings.Join(r.Path, ", "), r.Session, r.Schedule, r.Shares,
		text.Count(len(r.Members), "path"), r.Of)
	what := "of the stream passed there"
	if r.Shares != "none" {
		what = "of the stream has shares that passed there"
	}
	fmt.Fprintf(&b, "%d of %d bytes (%s) %s\n", r.Seen, r.Length, portion(r.Seen, r.Length), what)
	if r.Pixels > 0 {
		fmt.Fprintf(&b, "%d of %d pixels are right (%s), PSNR %.1f dB\n", r.Right, r.Pixels, portion(uint64(r.Right), uint64(r.Pixels)), *r.PSNR)
	}
	if r.Out != "" {
		fmt.Fprintf(&b, "wrote %s\n", r.Out)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", note)
	}
	return b.String()
}

func portion(part, whole uint64) string {
	return text.Percent(float64(part) / float64(max(whole, 1)))
}
