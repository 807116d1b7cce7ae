package disguise

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/cmd/heddle/internal/cli"
	"heddle/config"
	"heddle/disguise/handshake"
	"heddle/internal/atomicfile"
	"heddle/path"
)

func newKeysCommand() *cobra.Command {
	d := struct {
		config.DisguiseBridge
		Client string `flag:"client" help:"write a client's bridge.toml to <FILE>" complete:"file"`
	}{DisguiseBridge: config.DefaultDisguiseServe().DisguiseBridge}
	return bind.Flags(&cobra.Command{
		Use:   "keys [--address ADDRESS:PORT]",
		Short: "Print a bridge's line, and make its key if there is none",
		Long: `Keys makes the private key of a bridge if there is none, in a file that only its
owner can read, and prints the bridge line: all that a client needs. Whoever has
the line can find out that the address is a bridge. Without --address it prints
the public key only.

With --tokens the line has a new token, which keys adds to that file. A bridge
that runs with the file serves only clients that have one of its tokens, and
reads it when it starts.

With --client it writes a bridge.toml for heddle disguise dial instead of
printing the line. Only its owner can read that file.`,
		Example: `  heddle disguise keys --address 192.0.2.9:443
  heddle disguise keys --address 192.0.2.9:443 --tokens tokens --client ann.toml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.Check(); err != nil {
				return cli.Usage(err)
			}
			return runKeys(cmd, d.DisguiseBridge, d.Client)
		},
	}, &d)
}

func runKeys(cmd *cobra.Command, d config.DisguiseBridge, client string) error {
	if client != "" && len(d.Address) != 1 {
		return cli.Usage(&path.Error{What: "--client", Why: fmt.Sprintf("a file is for one bridge line, and there are %d addresses", len(d.Address)), Hint: "give one --address"})
	}
	file, err := d.IdentityFile()
	if err != nil {
		return err
	}
	id, created, err := handshake.LoadOrCreateIdentity(file)
	if err != nil {
		return err
	}
	if created {
		fmt.Fprintf(cmd.ErrOrStderr(), "disguise: made a new key in %s\n", file)
	}
	if len(d.Address) == 0 {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), id.Public())
		return err
	}
	var token []byte
	if d.Tokens != "" {
		if token, err = addToken(d.Tokens); err != nil {
			return err
		}
	}
	lines := d.Lines(id.Public(), token)
	if client != "" {
		return writeClient(client, lines[0])
	}
	if err := cli.KeepToOwner(cmd.OutOrStdout()); err != nil {
		return err
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), line); err != nil {
			return err
		}
	}
	return nil
}

// addToken adds a new token to a file of tokens, or makes the file.
func addToken(file string) ([]byte, error) {
	what := "tokens " + file
	data, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &path.Error{What: what, Why: "it cannot be read", Err: err}
	}
	if err == nil {
		if _, err := config.ReadTokens(file); err != nil {
			return nil, err
		}
	}
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
		data = append(data, '\n')
	}
	token := make([]byte, 16)
	rand.Read(token)
	data = append(append(data, base64.RawURLEncoding.EncodeToString(token)...), '\n')
	if err := atomicfile.WritePrivate(file, data); err != nil {
		return nil, &path.Error{What: what, Why: "it cannot be written", Err: err}
	}
	return token, nil
}

// writeClient makes a client's file, and replaces none.
func writeClient(file string, line handshake.Line) error {
	text := fmt.Sprintf("# How to reach a bridge, for heddle disguise dial. Keep it to yourself: who has it can find the bridge.\nbridge = %q\n", line)
	err := atomicfile.CreatePrivate(file, []byte(text))
	if errors.Is(err, fs.ErrExist) {
		return &path.Error{What: "client " + file, Why: "it is there already", Hint: "name another file, or remove it"}
	}
	if err != nil {
		return &path.Error{What: "client " + file, Why: "it cannot be written", Err: err}
	}
	return nil
}
