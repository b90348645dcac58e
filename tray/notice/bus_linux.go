package notice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

// The desktop's notification server: https://specifications.freedesktop.org/notification-spec/1.2/
const (
	server     = "org.freedesktop.Notifications"
	serverPath = dbus.ObjectPath("/org/freedesktop/Notifications")
	daemonBus  = "org.freedesktop.DBus"
)

const (
	// answerTime bounds each call of the notification server.
	answerTime = 5 * time.Second
	// maxQueue bounds what waits for the server, maxUnsent what is kept while there is none.
	maxQueue  = 256
	maxUnsent = 20
)

// Bus is the Screen of a Linux desktop: the notification server on the session bus.
//
// Any program on the bus can send us the signal that says "Accept was clicked", with or without our match rules, so a signal counts only
// when it comes from the bus name of the server that we sent the notification to, and for an ID that this server gave us. The
// handler of esiqveland/notify does not look at the sender, and panics on a signal with a wrong body; so only its types are used.
type Bus struct {
	conn *dbus.Conn
	log  *slog.Logger
	wake chan struct{}

	mu    sync.Mutex
	queue []task

	// The rest belongs to Run's goroutine.
	owner   string // unique name of the server; "" when there is none
	actions bool   // it takes buttons
	hides   bool   // and shows them only when it is asked to
	markup  bool   // it takes bodies for markup
	asked   bool   // what it can do is known
	name    string // as it calls itself
	quiet   bool   // the user wants to be left alone, as far as the desktop says so
	shown   map[uint32]Notice
	unseen  map[string]bool // keys of those that wait for an answer, and came while the user wanted to be left alone
	unsent  []Notice
}

// task is a notice to show, or with only a key one to take back.
type task struct {
	notice  Notice
	retract bool
}

// Desktop is the Screen of this session. The error says that there is no session bus.
func Desktop(log *slog.Logger) (Screen, error) {
	conn, err := dbus.ConnectSessionBus()
	if err != nil {
		return nil, fmt.Errorf("connect to the session bus: %w", err)
	}
	return NewBus(conn, log), nil
}

// NewBus makes a Bus on a connection that is its own: Run closes it.
func NewBus(conn *dbus.Conn, log *slog.Logger) *Bus {
	return &Bus{conn: conn, log: log, wake: make(chan struct{}, 1), shown: map[uint32]Notice{}, unseen: map[string]bool{}}
}

// Show implements Screen.
func (b *Bus) Show(n Notice) { b.enqueue(task{notice: n}) }

// Retract implements Screen.
func (b *Bus) Retract(key string) { b.enqueue(task{notice: Notice{Key: key}, retract: true}) }

func (b *Bus) enqueue(t task) {
	b.mu.Lock()
	if len(b.queue) == maxQueue {
		b.queue = slices.Delete(b.queue, 0, 1)
	}
	b.queue = append(b.queue, t)
	b.mu.Unlock()
	wake(b.wake)
}

func (b *Bus) dequeue() (task, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		return task{}, false
	}
	t := b.queue[0]
	b.queue = slices.Delete(b.queue, 0, 1)
	return t, true
}

// Run implements Screen.
func (b *Bus) Run(ctx context.Context, clicked func(Answer)) error {
	defer b.conn.Close()
	signals := make(chan *dbus.Signal, 64)
	b.conn.Signal(signals)
	defer b.conn.RemoveSignal(signals)
	changes := []dbus.MatchOption{
		dbus.WithMatchSender(daemonBus), dbus.WithMatchInterface(daemonBus), dbus.WithMatchMember("NameOwnerChanged"), dbus.WithMatchArg(0, server),
	}
	clicks := []dbus.MatchOption{dbus.WithMatchSender(server), dbus.WithMatchInterface(server), dbus.WithMatchObjectPath(serverPath)}
	for _, match := range append([][]dbus.MatchOption{changes, clicks}, quietMatches...) {
		if err := b.conn.AddMatchSignalContext(ctx, match...); err != nil {
			return b.end(ctx, fmt.Errorf("listen to the notification server: %w", err))
		}
		defer b.conn.RemoveMatchSignal(match...)
	}
	// Before its first use the server may not run: it is started by the call that shows something.
	b.moved(ctx)
	for {
		select {
		case <-ctx.Done():
			b.retractAll()
			return nil
		case <-b.conn.Context().Done():
			return b.end(ctx, errors.New("the session bus is gone"))
		case s, ok := <-signals:
			if !ok {
				return b.end(ctx, errors.New("the session bus is gone"))
			}
			b.signal(ctx, s, clicked)
		case <-b.wake:
			for t, more := b.dequeue(); more && ctx.Err() == nil; t, more = b.dequeue() {
				b.work(ctx, t)
			}
		}
	}
}

func (b *Bus) end(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (b *Bus) work(ctx context.Context, t task) {
	b.unsent = slices.DeleteFunc(b.unsent, func(n Notice) bool { return n.Key == t.notice.Key })
	if t.retract {
		delete(b.unseen, t.notice.Key)
		if id := b.id(t.notice.Key); id != 0 {
			delete(b.shown, id)
			b.close(ctx, id)
		}
		return
	}
	b.send(ctx, t.notice)
}

// id is the server's number for what is on the screen under a key; 0: nothing is.
func (b *Bus) id(key string) uint32 {
	for id, n := range b.shown {
		if n.Key == key {
			return id
		}
	}
	return 0
}

func (b *Bus) close(ctx context.Context, id uint32) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := b.conn.Object(b.owner, serverPath).CallWithContext(ctx, server+".CloseNotification", dbus.FlagNoAutoStart, id).Err; err != nil {
		b.log.Debug("notification could not be taken back", "err", err) // the user closed it already
	}
}

// retractAll takes the questions back when the tray leaves: nobody would hear their buttons.
func (b *Bus) retractAll() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for id, n := range b.shown {
		if n.About != (Subject{}) {
			b.close(ctx, id)
		}
	}
}

// signal acts on what the bus says; anybody may have sent it.
func (b *Bus) signal(ctx context.Context, s *dbus.Signal, clicked func(Answer)) {
	switch {
	case s.Sender == daemonBus && s.Name == daemonBus+".NameOwnerChanged":
		b.settle(ctx)
	case b.ofQuiet(s):
		b.hush(ctx)
	case b.owner == "" || s.Sender != b.owner || s.Path != serverPath:
		b.log.Debug("signal of a stranger", "sender", s.Sender, "signal", s.Name)
	case s.Name == server+".ActionInvoked":
		var id uint32
		var action string
		if dbus.Store(s.Body, &id, &action) == nil {
			b.invoked(id, action, clicked)
		}
	case s.Name == server+".NotificationClosed":
		var id, reason uint32
		if dbus.Store(s.Body, &id, &reason) == nil {
			delete(b.shown, id)
		}
	}
}

// invoked takes a click on one of our buttons, once.
func (b *Bus) invoked(id uint32, action string, clicked func(Answer)) {
	n, ours := b.shown[id]
	if !ours || n.About == (Subject{}) || action != actionYes && action != actionNo {
		return
	}
	delete(b.shown, id)
	clicked(Answer{Subject: n.About, Yes: action == actionYes})
}

// settle learns who the server is now, and shows what waited for one.
func (b *Bus) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	b.moved(ctx)
	if b.owner == "" {
		return
	}
	waiting := b.unsent
	b.unsent = nil
	for _, n := range waiting {
		b.send(ctx, n)
	}
}

// moved notes that the server ended, or that another one came: what was on the screen went with the old one, and its numbers mean
// nothing to the new one. It asks instead of believing signals, which may tell of the last server but one.
func (b *Bus) moved(ctx context.Context) {
	var owner string
	if err := b.conn.BusObject().CallWithContext(ctx, daemonBus+".GetNameOwner", 0, server).Store(&owner); err != nil {
		owner = ""
	}
	if owner == b.owner {
		return
	}
	b.log.Debug("notification server changed", "owner", owner)
	b.owner, b.asked = owner, false
	for _, n := range b.shown {
		if n.About.waits() { // it still does
			b.keep(n)
		}
	}
	clear(b.shown)
	clear(b.unseen)
}

// keep has a notice shown when there is a server again.
func (b *Bus) keep(n Notice) {
	b.unsent = append(b.unsent, n)
	if len(b.unsent) > maxUnsent {
		b.unsent = b.unsent[1:]
	}
}
