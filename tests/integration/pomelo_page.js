// Says back what it shows: then it is known that it shows it.
const score = document.getElementById("score");
pomelo.on("onScore", body => {
  score.textContent = `${body.name}: ${body.points}`;
  pomelo.notify("page.shows", {text: score.innerText});
});
pomelo.init({host: "127.0.0.1", port: PORT, user: {uid: "alice"}}, () => {
  pomelo.request("area.player.move", {x: 1, y: -2}, answer => {
    pomelo.notify("page.answered", answer);
  });
});
