package daemon

import (
	"net/http"
	"os"
	"os/user"
	"strconv"
	"strings"
	"testing"

	"kith.dev/core/local/frontdoor"
	"kith.dev/daemon/config"
)

func TestWhoMayComeIn(t *testing.T) {
	me, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	uid, _ := strconv.Atoi(me.Uid)
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip(err)
	}
	other, _ := strconv.Atoi(nobody.Uid)
	own, err := user.LookupGroupId(nobody.Gid)
	if err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		who   frontdoor.User
		group string
		says  string // "" when he may
	}{
		{frontdoor.User{Name: me.Username, UID: uid}, "no-such-group", ""},
		{frontdoor.User{Name: "nobody", UID: other}, own.Name, ""},
		{frontdoor.User{Name: "nobody", UID: other}, "no-such-group", "not listed in the group no-such-group"},
		{frontdoor.User{Name: "mallory", UID: other}, own.Name, "is now nobody"},
		{frontdoor.User{Name: "nobody", UID: 4711}, own.Name, "not known on this laptop"},
	} {
		d := &Daemon{cfg: config.Config{SocketGroup: c.group}}
		if err := d.mayComeIn(c.who); (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, group %s: %v, want %q", c.who, c.group, err, c.says)
		}
	}
	if os.Geteuid() == 0 {
		if err := (&Daemon{}).mayComeIn(frontdoor.User{Name: "root"}); err != nil {
			t.Error(err)
		}
	}
}

func TestAnAdministratorAsksAsHimselfOrAsHeSays(t *testing.T) {
	alice := frontdoor.User{Name: "alice", UID: 1000}
	as, err := asOwner(alice, nil)
	if err != nil || as.Get("Impersonate-User") != "alice" || strings.Join(as["Impersonate-Group"], " ") != "kith:users system:masters" {
		t.Errorf("%v %v", as, err)
	}
	asked := http.Header{"Impersonate-User": {"carol"}}
	for name, by := range map[string]func(frontdoor.User, http.Header) (http.Header, error){"our cluster": asOwner, "another's": asAsked} {
		if as, err := by(alice, asked); err != nil || len(as) != 1 || as.Get("Impersonate-User") != "carol" {
			t.Errorf("%s: %v %v", name, as, err)
		}
	}
	if as, err := asAsked(alice, nil); err != nil || len(as) > 0 {
		t.Errorf("another's cluster is told of groups: %v %v", as, err)
	}
}

func TestATetheredLaptopsUserIsWhoTheCompanySays(t *testing.T) {
	alice := frontdoor.User{Name: "alice", UID: 1000}
	if as, err := asLaptop(alice, nil); err != nil || len(as) != 1 || as.Get("X-Kith-User") != "alice" {
		t.Errorf("%v %v", as, err)
	}
	if _, err := asLaptop(alice, http.Header{"Impersonate-User": {"carol"}}); err == nil || !strings.Contains(err.Error(), "--as is not passed on while this laptop is tethered") {
		t.Errorf("as another: %v", err)
	}
}
