package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"kith.dev/core/base/durable"
)

// tellPatience is how long the engine may take: its controllers have ten seconds to end, after which it starts anew.
const tellPatience = 20 * time.Second

// deciding holds whether the engine's scheduler and controllers are to run, and whether they do as far as is known.
type deciding struct {
	mu    sync.Mutex
	want  bool
	is    bool
	known bool
}

// set changes what is wanted.
func (d *deciding) set(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want = on
}

// next gives what is wanted, and in news whether the engine has yet to be told so.
func (d *deciding) next() (want, news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	news = !d.known || d.is != d.want
	d.known = d.known && !news
	return d.want, news
}

func (d *deciding) told(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.is, d.known = on, true
}

func (d *deciding) unknown() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = false
}

// look reports whether the engine is known to be as on says (done), and whether that is still wanted.
func (d *deciding) look(on bool) (done, wanted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known && d.is == on, d.want == on
}

// Decide writes what is wanted to the disk, so that it survives a restart, and waits until the engine has been told. Run must be running.
func (c *child) Decide(ctx context.Context, on bool) error {
	if err := c.note(on); err != nil {
		return fmt.Errorf("note whether %s decides: %w", c.what, err)
	}
	c.deciding.set(on)
	c.changed.Notify() // wakes an earlier Decide that still waits for the opposite
	c.Wake("a switch of who decides")
	c.ring()
	wanted := true
	err := c.wait(ctx, func(s State) (done bool) {
		done, wanted = c.deciding.look(on)
		return !wanted || done && s.Phase == Ready
	})
	if err == nil && !wanted {
		err = errors.New(c.what + " was told the opposite meanwhile")
	}
	return err
}

// Decides reports what Decide was told last, also by an earlier process.
func (c *child) Decides() bool {
	_, on := c.deciding.look(true)
	return on
}

// tellNews tells the engine what is wanted, if it may not know.
func (b *Builtin) tellNews(ctx context.Context) error {
	want, news := b.deciding.next()
	if !news {
		return nil
	}
	if err := b.tell(ctx, want); err != nil {
		return err
	}
	b.deciding.told(want)
	b.changed.Notify()
	return nil
}

// undecidedFile exists while the scheduler and controllers are off: a laptop that boots must not start them before kithd can say so.
func (c *child) undecidedFile() string { return filepath.Join(c.dataDir, "deciding-off") }

// note writes what is wanted to the disk.
func (c *child) note(on bool) error {
	if on {
		return durable.Remove(c.undecidedFile())
	}
	if err := os.MkdirAll(c.dataDir, 0o711); err != nil {
		return err
	}
	return durable.WriteFile(c.undecidedFile(), nil, 0o600)
}

// recall reads what an earlier process noted, so that the first start of the engine obeys it.
func (c *child) recall() {
	_, err := os.Stat(c.undecidedFile())
	c.deciding.set(errors.Is(err, fs.ErrNotExist))
}

// tellEngine tells the engine on its socket (kith.dev/engine/deciding).
func (b *Builtin) tellEngine(ctx context.Context, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, tellPatience)
	defer cancel()
	body := fmt.Appendf(nil, `{"on":%t}`, on)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://engine/deciding", bytes.NewReader(body))
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", b.path("deciding.sock"))
		},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("it cannot be told whether to decide: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return fmt.Errorf("told whether to decide, it answers %s: %s", resp.Status, bytes.TrimSpace(why))
	}
	return nil
}
