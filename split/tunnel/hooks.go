package tunnel

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
)

// hooks runs the commands of a wg-quick file for one moment: when the change is made or, with AtEnd, undone.
type hooks struct {
	Device   string   `json:"device"`
	When     string   `json:"when"`
	AtEnd    bool     `json:"at_end"`
	Commands []string `json:"commands"`

	log *slog.Logger
}

func (c *hooks) String() string {
	text := c.When + ": " + c.expand(strings.Join(c.Commands, "; "))
	if c.AtEnd {
		text += " (at the end)"
	}
	return text
}

func (c *hooks) expand(command string) string { return strings.ReplaceAll(command, "%i", c.Device) }

// Apply stops at the first command that fails.
func (c *hooks) Apply() error {
	if c.AtEnd {
		return nil
	}
	for _, command := range c.Commands {
		if err := c.run(command); err != nil {
			return err
		}
	}
	return nil
}

// Undo runs all commands and logs errors, since a retry would run the first commands again.
func (c *hooks) Undo() error {
	if !c.AtEnd {
		return nil
	}
	for _, command := range c.Commands {
		if err := c.run(command); err != nil {
			c.logger().Warn("a command of the file failed", "when", c.When, "error", err)
		}
	}
	return nil
}

func (c *hooks) logger() *slog.Logger { return cmp.Or(c.log, slog.Default()) }

func (c *hooks) run(command string) error {
	shell := "bash"
	if _, err := exec.LookPath(shell); err != nil {
		shell = "sh"
	}
	command = c.expand(command)
	c.logger().Info("run", "when", c.When, "command", command)
	// Standard error is the log. It is passed on directly, not through a pipe: a command may leave a daemon behind.
	run := exec.Command(shell, "-c", command)
	run.Stdout, run.Stderr = os.Stderr, os.Stderr
	err := run.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%q ended with status %d", command, exit.ExitCode())
	}
	return err
}
