package cloud

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"time"

	"heddle/internal/errhint"
	"heddle/pseudonym/audit"
	"heddle/pseudonym/database"
	"heddle/pseudonym/login"
	"heddle/pseudonym/store"
)

func (c *Cloud) openStore(ctx context.Context) (err error) {
	if c.store, err = c.newStore(); err != nil {
		return err
	}
	if err := c.db.PutTenant(ctx, database.Tenant{Site: c.o.Zone.Store(), Addresses: c.o.Stores, Created: time.Now()}); err != nil || c.o.Audit == "" {
		return err
	}
	if c.audit, err = audit.Open(c.o.Audit, c.o.Log); err != nil {
		return err
	}
	return c.audit.Say(eventBegan, "")
}

// Events of the audit log, beside those of the store.
const (
	eventBegan    = "store_began"
	eventEnded    = "store_ended"
	TenantAdded   = "tenant_added"
	TenantRemoved = "tenant_removed"
)

// note counts an event of the store for the audit log.
func (c *Cloud) note(e store.Event) {
	if c.audit != nil {
		c.audit.Note(string(e))
	}
}

// NoteTenant writes a change of a tenant to the audit log, for commands.
func NoteTenant(o Options, event, site string) error {
	if o.Audit == "" {
		return nil
	}
	l, err := audit.Open(o.Audit, o.Log)
	if err != nil {
		return err
	}
	return errors.Join(l.Say(event, site), l.Close())
}

// newStore makes the store, with keys that come from that of the database: all processes of it take each other's puzzles and logins.
func (c *Cloud) newStore() (*store.Store, error) {
	o := store.Options{Zone: c.o.Zone, Database: c.db, Issuer: c.issuer, Root: c.root.Raw, Life: c.o.Life, Most: c.o.Most, Work: c.o.Work, Note: c.note, Log: c.o.Log}
	seal, err := readSeal(c.o.Dir)
	if err != nil {
		return nil, err
	}
	if o.WorkKey, err = seal.Derive("work"); err != nil {
		return nil, err
	}
	if c.o.Login == "" {
		return store.New(o), nil
	}
	key, err := seal.Derive("login")
	if err != nil {
		return nil, err
	}
	secret, err := readSecret(c.o.Secret)
	if err != nil {
		return nil, err
	}
	o.Login, err = login.New(login.Options{Issuer: c.o.Login, Client: c.o.Client, Secret: secret, Redirect: "https://" + c.o.Zone.Store() + store.LoginDonePath, Key: key})
	return store.New(o), err
}

// readSecret reads what proves to a provider of accounts that the store asks. A client without a secret has no file.
func readSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	refuse := func(why, hint string, err error) (string, error) {
		return "", &errhint.Error{What: "the secret " + file, Why: why, Hint: hint, Err: err}
	}
	info, err := os.Stat(file)
	if err != nil {
		return refuse("it cannot be read", "the provider of accounts gives one", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return refuse("others may read it", "chmod 600 "+file, nil)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return refuse("it cannot be read", "", err)
	}
	return strings.TrimSpace(string(text)), nil
}
