package session

import (
	"reflect"
	"sync/atomic"

	"github.com/godbus/dbus/v5"
)

// Bus is a connection to the session bus. What Answer serves is answered in the order of the calls, while godbus answers each in a goroutine of
// its own: libdbusmenu-gtk asks for a menu in several calls at once, and leaves a submenu empty for good if it hears of what is in it before
// it hears of the submenu.
type Bus struct {
	*dbus.Conn
	served *atomic.Pointer[served]
}

// served is an object with the methods of one interface.
type served struct {
	conn   *dbus.Conn
	path   dbus.ObjectPath
	iface  string
	object reflect.Value
}

// Connect makes a connection by a function that opens one, such as dbus.SessionBusPrivateNoAutoStartup.
func Connect(open func(...dbus.ConnOption) (*dbus.Conn, error)) (Bus, error) {
	b := Bus{served: &atomic.Pointer[served]{}}
	conn, err := open(dbus.WithIncomingInterceptor(func(msg *dbus.Message) {
		if s := b.served.Load(); s != nil {
			s.take(msg)
		}
	}))
	if err != nil {
		return Bus{}, err
	}
	if err = conn.Auth(nil); err == nil {
		err = conn.Hello()
	}
	if err != nil {
		conn.Close()
		return Bus{}, err
	}
	b.Conn = conn
	return b, nil
}

// Answer has the calls of one interface at one path answered by the methods of object, one after the other in the order in which they come. The
// methods are as for Export, with which the object has to be served, too; they must not wait for the bus.
func (b Bus) Answer(path dbus.ObjectPath, iface string, object any) {
	b.served.Store(&served{b.Conn, path, iface, reflect.ValueOf(object)})
}

// take answers a call and leaves nothing of it to be dispatched. What is no such call, or has other arguments, is left to Export.
func (s *served) take(msg *dbus.Message) {
	if msg.Type != dbus.TypeMethodCall || msg.Headers[dbus.FieldPath].Value() != s.path || msg.Headers[dbus.FieldInterface].Value() != s.iface {
		return
	}
	member, _ := msg.Headers[dbus.FieldMember].Value().(string)
	method := s.object.MethodByName(member)
	if !method.IsValid() {
		return
	}
	var pointers []any
	var args []reflect.Value
	for i := range method.Type().NumIn() {
		p := reflect.New(method.Type().In(i))
		pointers, args = append(pointers, p.Interface()), append(args, p.Elem())
	}
	if dbus.Store(msg.Body, pointers...) != nil {
		return
	}
	out := method.Call(args)
	msg.Type = 0
	if msg.Flags&dbus.FlagNoReplyExpected != 0 {
		return
	}
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: msg.Headers[dbus.FieldSender], dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial()),
	}}
	last := len(out) - 1
	if err, _ := out[last].Interface().(*dbus.Error); err != nil {
		reply.Type, reply.Body = dbus.TypeError, err.Body
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(err.Name)
	} else {
		for _, v := range out[:last] {
			reply.Body = append(reply.Body, v.Interface())
		}
	}
	if len(reply.Body) > 0 {
		reply.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(reply.Body...))
	}
	s.conn.Send(reply, nil)
}
