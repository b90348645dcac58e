package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
)

func (l *Lab) cutsFile() string { return filepath.Join(l.state, "cuts.json") }

func (l *Lab) cuts() []Cut {
	var c []Cut
	_ = readJSON(l.cutsFile(), &c) // no file: no cuts
	return c
}

// Cut drops every frame between laptops a and b, in silence and both ways; with b empty, between a and all of the LAN.
// It holds over a reboot of either. Cutting twice is no error.
func (l *Lab) Cut(ctx context.Context, a, b string) error {
	return l.changeCuts(ctx, a, b, func(cuts []Cut) []Cut {
		if c := cutOf(a, b); !slices.Contains(cuts, c) {
			cuts = append(cuts, c)
		}
		return cuts
	})
}

// Heal undoes Cut; with b empty it heals all links of a, also those cut one by one.
func (l *Lab) Heal(ctx context.Context, a, b string) error {
	return l.changeCuts(ctx, a, b, func(cuts []Cut) []Cut {
		return slices.DeleteFunc(cuts, func(c Cut) bool { return c == cutOf(a, b) || b == "" && c.touches(a) })
	})
}

func (l *Lab) changeCuts(ctx context.Context, a, b string, change func([]Cut) []Cut) error {
	for _, n := range []string{a, b} {
		if n == "" {
			continue
		}
		if _, err := l.Laptop(n).record(); err != nil {
			return err
		}
	}
	if a == b {
		return fmt.Errorf("%s has no link to itself", a)
	}
	unlock, err := l.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := writeJSON(l.cutsFile(), change(l.cuts())); err != nil {
		return fmt.Errorf("remember cuts: %w", err)
	}
	return l.applyFilter()
}

// applyFilter brings the LAN's filter to what cuts.json and the laptops' records say.
func (l *Lab) applyFilter() error {
	lan, err := l.Laptop(lanName).running()
	if err != nil {
		return err
	}
	losses := map[string]float64{}
	for _, p := range l.Laptops() {
		if r, err := p.record(); err == nil {
			losses[p.name] = r.Link.Loss
		}
	}
	return setFilter(lan, drops(l.cuts(), losses))
}

// Slow sets rate, delay and loss of the laptop's link; the zero Link makes it perfect again. An MTU of 0 stays as
// it was. It holds over a reboot.
func (p *Laptop) Slow(ctx context.Context, k Link) error {
	return p.changeLink(ctx, func(old Link) Link {
		if k.MTU == 0 {
			k.MTU = old.MTU
		}
		return k
	})
}

// SetMTU sets the MTU at both ends of the laptop's link; 0 is 1500. What is larger is dropped by the bridge in silence.
func (p *Laptop) SetMTU(ctx context.Context, mtu int) error {
	return p.changeLink(ctx, func(old Link) Link { old.MTU = mtu; return old })
}

func (p *Laptop) changeLink(ctx context.Context, change func(Link) Link) error {
	return p.changeRecord(ctx, func(r *record) error {
		r.Link = change(r.Link)
		if err := r.Link.check(); err != nil {
			return err
		}
		pid, lan := p.group.Init(), p.lab.Laptop(lanName).group.Init()
		if pid == 0 || lan == 0 {
			return nil // it takes effect at boot
		}
		port, err := netlinkIn(lan)
		if err != nil {
			return err
		}
		defer port.Close()
		in, err := netlinkIn(pid)
		if err != nil {
			return err
		}
		defer in.Close()
		return shape(port, in, p.name, r.Link)
	})
}

// changeRecord changes the record under the lab's lock, keeps it if change succeeds, and applies the filter.
func (p *Laptop) changeRecord(ctx context.Context, change func(*record) error) error {
	unlock, err := p.lab.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := p.record()
	if err != nil {
		return err
	}
	if err := change(&r); err != nil {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	if err := writeJSON(p.recordFile(), r); err != nil {
		return fmt.Errorf("%s: remember link: %w", p.name, err)
	}
	return p.lab.applyFilter()
}

// Move gives the laptop another address on the LAN, as when changing Wi-Fi: link down, the old address gone, link up.
// Without an address it takes the next free one from .101 on. It returns the new address.
func (p *Laptop) Move(ctx context.Context, to netip.Addr) (netip.Addr, error) {
	err := p.changeRecord(ctx, func(r *record) error {
		taken, err := p.lab.addresses()
		if err != nil {
			return err
		}
		if to, err = freeAddress(p.lab.family, taken, r.Address, to); err != nil {
			return err
		}
		r.Address = to
		pid := p.group.Init()
		if pid == 0 {
			return nil
		}
		in, err := netlinkIn(pid)
		if err != nil {
			return err
		}
		defer in.Close()
		return setAddress(in, p.lab.family, to)
	})
	return to, err
}

// addresses lists those in use, by whom.
func (l *Lab) addresses() (map[netip.Addr]string, error) {
	taken := map[netip.Addr]string{l.family.address(router): "the LAN's router"}
	for _, p := range l.Laptops() {
		r, err := p.record()
		if err != nil {
			return nil, err
		}
		taken[r.Address] = p.name
	}
	return taken, nil
}

// freeAddress checks the wanted address, or finds the first free one after now, going round.
func freeAddress(lan Family, taken map[netip.Addr]string, now, want netip.Addr) (netip.Addr, error) {
	if want.IsValid() {
		if host := hostOf(want); lan.address(host) != want || host == 0 || host == 255 {
			return want, fmt.Errorf("address %s is none of the LAN %s", want, lan.networks()[0])
		}
		if who, ok := taken[want]; ok {
			return want, fmt.Errorf("address %s is taken by %s", want, who)
		}
		return want, nil
	}
	from := max(int(hostOf(now))+1, movedFirst)
	const n = movedLast - movedFirst + 1
	for i := range n {
		a := lan.address(byte(movedFirst + (from-movedFirst+i)%n))
		if _, ok := taken[a]; !ok {
			return a, nil
		}
	}
	return want, errors.New("no free address is left on the LAN")
}
