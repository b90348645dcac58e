package daemon

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/user"
	"path/filepath"
	"strconv"

	"kith.dev/core/local/frontdoor"
	"kith.dev/daemon/localapi"
)

// openFrontDoor makes the front door and takes its port. It leads nowhere yet.
func (d *Daemon) openFrontDoor() (err error) {
	if d.cfg.FrontDoorPort == 0 || d.engine == nil {
		return nil
	}
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), d.cfg.FrontDoorPort)
	if d.front, err = frontdoor.New(frontdoor.Config{
		Dir: filepath.Join(d.cfg.DataDir, "frontdoor"), Address: at, Allowed: d.mayComeIn, Audit: d.audits, Log: d.log,
	}); err != nil {
		return err
	}
	if d.frontAt, err = net.Listen("tcp", at.String()); err != nil {
		return fmt.Errorf("open the front door: %w (another program has the port? set frontDoorPort)", err)
	}
	d.backend.Front = d.front
	return nil
}

// mayComeIn asks the system's directory whether a user is still one who may call the local API: what a certificate says is a year old at most.
func (d *Daemon) mayComeIn(who frontdoor.User) error {
	known, err := user.LookupId(strconv.Itoa(who.UID))
	if err != nil {
		return fmt.Errorf("user %s is not known on this laptop: %w", who.Name, err)
	}
	if known.Username != who.Name {
		return fmt.Errorf("user %s is now %s: `kith kubeconfig` prints a kubeconfig for that name", who.Name, known.Username)
	}
	member, err := localapi.Member(who.UID, d.cfg.SocketGroup)
	if err != nil {
		return err
	}
	if !member {
		return fmt.Errorf("user %s is not listed in the group %s, whose members may use this laptop's Kubernetes", who.Name, d.cfg.SocketGroup)
	}
	return nil
}

// asOwner has who comes in be himself, with all power: it is who may call the local API, and so has the administrator's key for the
// asking (docs/security.md). An administrator may ask as anybody else.
func asOwner(who frontdoor.User, asked http.Header) (http.Header, error) {
	if asked != nil {
		return asked, nil
	}
	return http.Header{"Impersonate-User": {who.Name}, "Impersonate-Group": {frontdoor.Group, "system:masters"}}, nil
}

// asAsked leaves it to a kubeconfig of somebody else's cluster who everybody is there: it may have less than all power, and then could make
// nobody an administrator.
func asAsked(_ frontdoor.User, asked http.Header) (http.Header, error) { return asked, nil }
