package nft

import (
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"heddle/internal/journal"
)

// Prefix starts the name of each of Heddle's tables.
const Prefix = "heddle"

// Name returns a table's name: the prefix and the words, joined by '_'. nft(8) accepts letters, digits and '_'; other bytes
// of a word become _XX.
func Name(words ...string) string {
	var b strings.Builder
	b.WriteString(Prefix)
	for _, word := range words {
		b.WriteByte('_')
		for _, c := range []byte(word) {
			if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
				b.WriteByte(c)
			} else {
				b.WriteString("_" + hex.EncodeToString([]byte{c}))
			}
		}
	}
	return b.String()
}

// OfProcess returns the name of a table that belongs to this process. [Orphans] finds the table after the process ended.
func OfProcess(word string) string { return Name(word, strconv.Itoa(os.Getpid())) }

// Orphans lists the tables named by [OfProcess] whose processes ended. In its own PID namespace a process cannot see outside
// processes, so check the content of a table before removing it.
func Orphans(conn *nftables.Conn, family nftables.TableFamily, word string) ([]string, error) {
	tables, err := conn.ListTablesOfFamily(family)
	var names []string
	for _, table := range tables {
		pid, ours := strings.CutPrefix(table.Name, Name(word, ""))
		if _, err := os.Stat("/proc/" + pid); ours && err != nil {
			names = append(names, table.Name)
		}
	}
	return names, err
}

// buffer limits a transaction, in bytes: each element of each set takes about 200.
const buffer = 16 << 20

// Connect connects to the kernel. A transaction is one message: it must fit the socket's buffer, and so must all answers.
func Connect(options ...nftables.ConnOption) (*nftables.Conn, error) {
	return nftables.New(slices.Concat(options, []nftables.ConnOption{nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(buffer), c.SetReadBuffer(buffer))
	})})...)
}

// Change makes the changes of fill in one transaction: all or none.
func Change(fill func(*nftables.Conn) error, options ...nftables.ConnOption) error {
	conn, err := Connect(options...)
	if err != nil {
		return err
	}
	if err := fill(conn); err != nil {
		return err
	}
	return conn.Flush()
}

// Replace adds an empty table in place of one with the same name, without a moment between.
func Replace(conn *nftables.Conn, table *nftables.Table) {
	conn.AddTable(table) // ensures that there is one to delete
	conn.DelTable(table)
	conn.AddTable(table)
}

// Remove removes tables. If one does not exist, it removes none and returns nil.
func Remove(tables ...*nftables.Table) error {
	return journal.IgnoreGone(Change(func(conn *nftables.Conn) error {
		for _, table := range tables {
			conn.DelTable(table)
		}
		return nil
	}))
}

// Inet returns a table for both IPv4 and IPv6.
func Inet(name string) *nftables.Table {
	return &nftables.Table{Name: name, Family: nftables.TableFamilyINet}
}
