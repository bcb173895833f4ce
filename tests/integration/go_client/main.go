// Sends made-up events with go-lumber's asynchronous client as Filebeat does with its
// own: windows of -bulk events, -pipelining of them unacknowledged; after an error or a
// timeout it connects again and sends again what was not acknowledged.
//
// At its end it prints what came of it, as JSON.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand"
	"net"
	"os"
	"strings"
	"time"

	lumberjack "github.com/elastic/go-lumber/client/v2"
)

const (
	firstBackoff = time.Second
	maxBackoff   = time.Minute
)

type event struct {
	ID      int    `json:"id"`
	Sender  string `json:"sender"`
	Message string `json:"message"`
}

// Events that are sent together, those that are not acknowledged.
type batch struct {
	events []interface{}
	sent   bool
}

// What became of a batch: so many of its first events are acknowledged.
type outcome struct {
	batch *batch
	acked uint32
	err   error
}

type totals struct {
	Connections  int      `json:"connections"`
	Batches      int      `json:"batches"`
	Resent       int      `json:"resent"`
	Acknowledged int      `json:"acknowledged"`
	Events       int      `json:"events"`
	Errors       []string `json:"errors"`
	Seconds      float64  `json:"seconds"`
}

type sender struct {
	dial       func() (net.Conn, error)
	pipelining int
	level      int
	timeout    time.Duration
	queue      []*batch
	totals     totals
}

func main() {
	address := flag.String("address", "", "HOST:PORT")
	ca := flag.String("ca", "", "PEM file of who signed the reader's certificate; TLS")
	serverName := flag.String("server-name", "localhost", "of the certificate")
	name := flag.String("sender", "", "told in each event")
	events := flag.Int("events", 100000, "so many")
	size := flag.Int("size", 200, "bytes of each event's message")
	repeat := flag.Int("repeat", 1, "a message is the same digits so many times")
	bulk := flag.Int("bulk", 2048, "events in a window")
	pipelining := flag.Int("pipelining", 2, "windows that wait for acknowledgements")
	level := flag.Int("level", 3, "of compression; 0: none")
	timeout := flag.Duration("timeout", 30*time.Second, "of reads and writes")
	flag.Parse()

	s := &sender{
		dial:       dialer(*address, *ca, *serverName, *timeout),
		pipelining: *pipelining,
		level:      *level,
		timeout:    *timeout,
		queue:      batches(*name, *events, *size, *repeat, *bulk),
		totals:     totals{Events: *events, Errors: []string{}},
	}
	began := time.Now()
	s.run()
	s.totals.Seconds = time.Since(began).Seconds()
	if err := json.NewEncoder(os.Stdout).Encode(s.totals); err != nil {
		log.Fatal(err)
	}
}

// Messages of random hexadecimal digits: they compress to about half, as log lines with
// many numbers do, or to much less where they repeat.
func batches(name string, count, size, repeat, bulk int) []*batch {
	random := rand.New(rand.NewSource(int64(count)))
	digits := make([]byte, (size/repeat+1)/2)
	var made []*batch
	for id := 0; id < count; id++ {
		if id%bulk == 0 {
			made = append(made, &batch{})
		}
		random.Read(digits)
		last := made[len(made)-1]
		message := strings.Repeat(fmt.Sprintf("%x", digits), repeat)
		last.events = append(last.events, event{id, name, message})
	}
	return made
}

func dialer(address, ca, serverName string, timeout time.Duration) func() (net.Conn, error) {
	plain := &net.Dialer{Timeout: timeout}
	if ca == "" {
		return func() (net.Conn, error) { return plain.Dial("tcp", address) }
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		log.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: serverName}
	config.RootCAs.AppendCertsFromPEM(pem)
	return func() (net.Conn, error) {
		return tls.DialWithDialer(plain, "tcp", address, config)
	}
}

// Connects until all is acknowledged.
func (s *sender) run() {
	backoff := firstBackoff
	for len(s.queue) > 0 {
		before := s.totals.Acknowledged
		err := s.connection()
		if err == nil {
			continue
		}
		log.Print(err)
		s.totals.Errors = append(s.totals.Errors, err.Error())
		if s.totals.Acknowledged > before {
			backoff = firstBackoff
		}
		time.Sleep(backoff)
		if backoff *= 2; backoff > maxBackoff {
			backoff = maxBackoff
		}
	}
}

// Sends what is in the queue over one connection; what it did not acknowledge is in the
// queue again afterwards.
func (s *sender) connection() error {
	conn, err := s.dial()
	if err != nil {
		return err
	}
	s.totals.Connections++
	client, err := lumberjack.NewAsyncClientWithConn(
		conn, s.pipelining,
		lumberjack.Timeout(s.timeout), lumberjack.CompressionLevel(s.level),
	)
	if err != nil {
		log.Fatal(err)
	}
	// Callbacks must not block: there is room for more than are ever under way.
	outcomes := make(chan outcome, s.pipelining+8)
	underWay := 0
	var failed []*batch
	note := func(one outcome) {
		underWay--
		s.totals.Acknowledged += int(one.acked)
		one.batch.events = one.batch.events[one.acked:]
		if one.err != nil && err == nil {
			err = one.err
		}
		if len(one.batch.events) > 0 {
			failed = append(failed, one.batch)
		}
	}
	for err == nil && (len(s.queue) > 0 || underWay > 0) {
		if len(s.queue) == 0 || len(outcomes) > 0 {
			note(<-outcomes)
			continue
		}
		underWay++
		err = client.Send(s.next(outcomes))
	}
	_ = client.Close()
	for underWay > 0 {
		note(<-outcomes)
	}
	s.queue = append(failed, s.queue...)
	return err
}

// Takes the next batch from the queue; returns what `Send` takes.
func (s *sender) next(outcomes chan<- outcome) (lumberjack.AsyncSendCallback, []interface{}) {
	next := s.queue[0]
	s.queue = s.queue[1:]
	s.totals.Batches++
	if next.sent {
		s.totals.Resent += len(next.events)
	}
	next.sent = true
	return func(acked uint32, err error) { outcomes <- outcome{next, acked, err} }, next.events
}
