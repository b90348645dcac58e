package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"kith.dev/test/lab/cgroups"
	"kith.dev/test/lab/pid1"
)

// Laptop is a handle to one laptop of a lab. Its methods may be called at the same time.
type Laptop struct {
	lab   *Lab
	name  string
	state string
	disk  string
	group cgroups.Group
}

// record is what makes this laptop this laptop, kept on its disk as laptop.json, so that it boots the same again.
type record struct {
	Index   int        `json:"index"`
	Address netip.Addr `json:"address"`
	Link    Link       `json:"link"`
	Daemon  []string   `json:"daemon"`
	Env     []string   `json:"env,omitempty"`
	Engine  bool       `json:"engine"`
}

func (p *Laptop) recordFile() string { return filepath.Join(p.disk, "laptop.json") }

func (p *Laptop) record() (record, error) {
	var r record
	err := readJSON(p.recordFile(), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return r, p.unknown()
	}
	return r, err
}

func (p *Laptop) unknown() error {
	var names []string
	for _, o := range p.lab.Laptops() {
		names = append(names, o.name)
	}
	if len(names) == 0 {
		return fmt.Errorf("there is no lab %q: make it with kith-lab up", p.lab.name)
	}
	return fmt.Errorf("there is no laptop %q in lab %s: it has %s", p.name, p.lab.name, strings.Join(names, ", "))
}

// Name is the laptop's name, which is its host name too.
func (p *Laptop) Name() string { return p.name }

// Power is whether a laptop runs.
type Power string

// The states of a laptop.
const (
	Off    Power = "off"
	On     Power = "on"
	Frozen Power = "frozen"
)

// Info is what Laptop.Info and `kith-lab ls` tell.
type Info struct {
	Name    string     `json:"name"`
	Power   Power      `json:"power"`
	Address netip.Addr `json:"address"`
	// PID is PID 1 of the laptop as the machine numbers it.
	PID      int              `json:"pid,omitempty"`
	Up       time.Time        `json:"up,omitzero"`
	Daemon   pid1.DaemonState `json:"daemon,omitempty"`
	Restarts int              `json:"restarts"`
	LastExit string           `json:"lastExit,omitempty"`
	Engine   bool             `json:"engine"`
	Link     Link             `json:"link"`
	// Cut lists the laptops this one cannot reach, "lan" for all.
	Cut []string `json:"cut,omitempty"`
}

// Info looks at the laptop as it is now.
func (p *Laptop) Info() (Info, error) {
	r, err := p.record()
	if err != nil {
		return Info{}, err
	}
	i := Info{Name: p.name, Power: Off, Address: r.Address, Link: r.Link, Engine: r.Engine}
	for _, c := range p.lab.cuts() {
		switch {
		case c.A == p.name && c.B == "":
			i.Cut = append(i.Cut, lanName)
		case c.A == p.name:
			i.Cut = append(i.Cut, c.B)
		case c.B == p.name:
			i.Cut = append(i.Cut, c.A)
		}
	}
	if i.PID = p.group.Init(); i.PID == 0 {
		return i, nil
	}
	i.Power = On
	if p.group.Frozen() {
		i.Power = Frozen
	}
	if s, err := p.status(); err == nil {
		i.Up, i.Daemon, i.Restarts, i.LastExit = s.Up, s.Daemon, s.Restarts, s.LastExit
	}
	return i, nil
}

func (p *Laptop) status() (s pid1.Status, err error) {
	err = readJSON(filepath.Join(p.state, pid1.StatusFile), &s)
	return s, err
}

// running is the number of the laptop's PID 1, or an error that says why nothing can be done inside it.
func (p *Laptop) running() (int, error) {
	pid := p.group.Init()
	switch {
	case pid == 0 && p.name == lanName:
		return 0, fmt.Errorf("there is no lab %q: make it with kith-lab up", p.lab.name)
	case pid == 0:
		if _, err := p.record(); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("%s is off: kith-lab boot %s", p.name, p.name)
	case p.group.Frozen():
		return 0, fmt.Errorf("%s is frozen: kith-lab thaw %s", p.name, p.name)
	}
	return pid, nil
}

// Address is the laptop's address on the LAN.
func (p *Laptop) Address() (netip.Addr, error) {
	r, err := p.record()
	return r.Address, err
}

// Path is where the machine finds a file of the laptop, sockets included; "" when the laptop is off.
func (p *Laptop) Path(inside string) string {
	if pid := p.group.Init(); pid != 0 {
		return fmt.Sprintf("/proc/%d/root%s", pid, inside)
	}
	return ""
}

// Dial connects from inside the laptop to a literal address, so that a client in the test can talk to the laptop's
// API server: it fits rest.Config.Dial and http.Transport.DialContext.
func (p *Laptop) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var c net.Conn
	err := p.InNetwork(func() (err error) {
		c, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// InNetwork runs a function in the laptop's network, for a test that wants to listen or send there itself. It must not
// start goroutines that open sockets: those would be outside.
func (p *Laptop) InNetwork(do func() error) error {
	pid, err := p.running()
	if err != nil {
		return err
	}
	return inNetwork(pid, do)
}

// Freeze stops all processes of the laptop where they stand, containers included, as suspend does. Its clocks go on.
func (p *Laptop) Freeze(ctx context.Context) error {
	if _, err := p.running(); err != nil && !p.group.Frozen() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dieDeadline)
	defer cancel()
	return p.group.Freeze(ctx)
}

// Thaw lets a frozen laptop go on.
func (p *Laptop) Thaw(ctx context.Context) error {
	if _, err := p.running(); err != nil && !p.group.Frozen() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, dieDeadline)
	defer cancel()
	return p.group.Thaw(ctx)
}

// Kill is a power loss: everything in the laptop dies at once, with no warning; the disk stays.
func (p *Laptop) Kill(ctx context.Context) error {
	if _, err := p.record(); err != nil {
		return err
	}
	unlock, err := p.lab.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.unplug(); err != nil {
		return fmt.Errorf("%s: power loss: %w", p.name, err)
	}
	return p.switchOff(ctx)
}

// unplug takes the LAN away first: the kernel closes the connections of processes that die, which a laptop without
// power does not.
func (p *Laptop) unplug() error {
	pid := p.group.Init()
	if pid == 0 {
		return nil
	}
	in, err := netlinkIn(pid)
	if err != nil {
		return err
	}
	defer in.Close()
	eth, err := in.LinkByName(device)
	if err != nil {
		return err
	}
	return in.LinkSetDown(eth)
}

// Boot starts a laptop that is off. It returns when the daemon is started; WaitReady waits for the rest.
func (p *Laptop) Boot(ctx context.Context) error {
	unlock, err := p.lab.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return p.boot(ctx)
}

// boot is Boot under the lab's lock; a laptop that is on stays as it is.
func (p *Laptop) boot(ctx context.Context) error {
	if p.booted() {
		return nil
	}
	r, err := p.record()
	if err != nil {
		return err
	}
	s := p.spec()
	s.Disk, s.Bin, s.Daemon = p.disk, p.lab.bin, r.Daemon
	s.Env = append(p.environment(), r.Env...)
	return p.switchOn(ctx, s, func(pid int) error { return p.plug(pid, r) })
}

// RestartDaemon stops kithd and starts it again, as `systemctl restart` does; what it started lives on.
func (p *Laptop) RestartDaemon(ctx context.Context) error { return p.control(ctx, pid1.Restart) }

// StopDaemon stops kithd, and it stays stopped until StartDaemon or Boot.
func (p *Laptop) StopDaemon(ctx context.Context) error { return p.control(ctx, pid1.Stop) }

// StartDaemon starts a kithd that was stopped.
func (p *Laptop) StartDaemon(ctx context.Context) error { return p.control(ctx, pid1.Start) }

// KillDaemon ends kithd by SIGKILL, as a crash; it is started again after a second.
func (p *Laptop) KillDaemon(ctx context.Context) error { return p.control(ctx, pid1.Kill) }

// control sends a command to the laptop's PID 1 and waits until it is done.
func (p *Laptop) control(ctx context.Context, command string) error {
	if _, err := p.running(); err != nil {
		return err
	}
	// By way of an open directory: the path of a socket is limited to 107 bytes.
	dir, err := os.Open(p.state)
	if err != nil {
		return fmt.Errorf("%s daemon of %s: %w", command, p.name, err)
	}
	defer dir.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*pid1.StopAfter)
	defer cancel()
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), pid1.SocketFile))
	if err != nil {
		return fmt.Errorf("%s daemon of %s: %w", command, p.name, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	fmt.Fprintln(c, command)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return fmt.Errorf("%s daemon of %s: no answer: %w", command, p.name, err)
	}
	if line = strings.TrimSpace(line); line != "ok" {
		return fmt.Errorf("%s daemon of %s: %s", command, p.name, line)
	}
	return nil
}
