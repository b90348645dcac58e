package portmap

import (
	"context"
	"errors"
	"net/netip"
	"time"

	natpmp "github.com/jackpal/go-nat-pmp"
)

// pmpTimeout is for an answer: the question is repeated after a quarter of a second, and twice that each time.
const pmpTimeout = time.Second

type pmp struct{ client *natpmp.Client }

// natPMP is a router that answers by NAT-PMP.
func natPMP(ctx context.Context, at way) (mapper, error) {
	r := pmp{natpmp.NewClientWithLocalAndTimeout(at.router.AsSlice(), at.own.AsSlice(), pmpTimeout)}
	_, err := r.external(ctx)
	return r, err
}

func (pmp) by() string { return "NAT-PMP" }

func (r pmp) external(ctx context.Context) (netip.Addr, error) {
	if err := ctx.Err(); err != nil {
		return netip.Addr{}, err
	}
	got, err := r.client.GetExternalAddress()
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.AddrFrom4(got.ExternalIPAddress), nil
}

func (r pmp) add(ctx context.Context, p Port, outside uint16, lease time.Duration) (uint16, time.Duration, error) {
	if err := ctx.Err(); err != nil {
		return 0, 0, err
	}
	got, err := r.client.AddPortMappingWithDuration(string(p.Protocol), int(p.Number), int(outside), lease)
	switch {
	case err != nil:
		return 0, 0, err
	case got.InternalPort != p.Number: // of another question
		return 0, 0, errors.New("the router answers for another port")
	}
	return got.MappedExternalPort, time.Duration(got.PortMappingLifetimeInSeconds) * time.Second, nil
}

func (r pmp) remove(ctx context.Context, p Port, _ uint16) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	_, err := r.client.AddPortMapping(string(p.Protocol), int(p.Number), 0, 0)
	return err
}
